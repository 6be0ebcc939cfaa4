//! What is loaded into programs (`preload/preload.c`), and nothing else of Hoop: a program in C, an agent that echoes, and a network without links.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, mpsc};
use std::time::Duration;

/// What is built once: where it went.
type Built = OnceLock<PathBuf>;

/// Builds the program of all these tests, or the library as a static `hoop` has it.
fn build(built: &'static Built, compiler: &str, name: &str, arguments: &[&str]) -> &'static Path {
    built.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut compiler = Command::new(compiler);
        compiler.current_dir(env!("CARGO_MANIFEST_DIR")).args(["-Wall", "-Wextra", "-pthread", "-o"]);
        assert!(compiler.arg(&out).args(arguments).status().unwrap().success(), "{name}");
        out
    })
}

/// The library that this `hoop run` carries within itself and the one of a static `hoop`, each with programs of either C library: glibc and musl.
fn libraries_and_programs() -> [(&'static Path, &'static Path); 4] {
    static MUSL_LIBRARY: Built = Built::new();
    static PROGRAM: Built = Built::new();
    static MUSL_PROGRAM: Built = Built::new();
    let (source, own) =
        (["-O1", "-include", "stdbool.h", "tests/preload/program.c"], concat!(env!("OUT_DIR"), "/preload.so"));
    let musl = ["-shared", "-fPIC", "-O2", "-Werror", "preload/preload.c", "-nostdlib"];
    let libraries = [Path::new(own), build(&MUSL_LIBRARY, "musl-gcc", "preload-musl.so", &musl)];
    let programs = [
        build(&PROGRAM, "cc", "preload-program", &source),
        build(&MUSL_PROGRAM, "musl-gcc", "preload-program-musl", &source),
    ];
    let [own, musl] = libraries.map(|library| programs.map(|program| (library, program)));
    [own[0], own[1], musl[0], musl[1]]
}

/// How long a destination takes to answer that answers late.
const LATE: Duration = Duration::from_millis(300);

/// How often the program has let a connection be decided, and no connection has been yet. The program says so by a byte on its standard output.
#[derive(Default)]
struct Decisions(Mutex<usize>, Condvar);

impl Decisions {
    fn add(&self, count: usize) {
        *self.0.lock().unwrap() += count;
        self.1.notify_all();
    }

    fn take(&self) {
        *self.1.wait_while(self.0.lock().unwrap(), |left| *left == 0).unwrap() -= 1;
    }
}

/// Waits for a destination's verdict. Its last digit says how it takes connections: 0 at once, 1 it refuses them and 3 it takes them once the program lets it, 2 it never
/// answers, 4 it takes them late, 5 it refuses them at once, 6 it takes them at once and wants a file.
fn verdict(destination: &str, decisions: &Decisions) -> Option<i32> {
    match destination.as_bytes().last() {
        Some(b'0' | b'5' | b'6') => {}
        Some(b'1' | b'3') => decisions.take(),
        Some(b'4') => std::thread::sleep(LATE),
        _ => return None,
    }
    Some(if destination.ends_with(['1', '5']) { libc::ECONNREFUSED } else { 0 })
}

/// What became of attempts to connect, by their numbers; and whether `connect` has said so.
type Verdicts = Arc<(Mutex<HashMap<[u8; 8], (i32, bool)>>, Condvar)>;

/// Answers who asks how an attempt has ended (crates/relay, `results.rs`).
fn answer(mut asking: UnixStream, verdicts: &Verdicts) {
    let mut question = [0; 9];
    asking.read_exact(&mut question).unwrap();
    let [asked, number @ ..] = question;
    if asked == b'n' {
        let mut name = vec![0; number[0].into()];
        asking.read_exact(&mut name).unwrap();
        let address = if name == b"none.example" { [0; 4] } else { [10, 9, 1, 1] };
        return asking.write_all(&address).unwrap();
    }
    let (known, changed) = &**verdicts;
    let mut known = known.lock().unwrap();
    while asked == b'w' && known.get(&number).is_none_or(|(verdict, _)| *verdict == libc::EINPROGRESS) {
        known = changed.wait(known).unwrap();
    }
    let answer = match known.get_mut(&number) {
        None => -1,
        Some((libc::EINPROGRESS, _)) if asked == b'c' => libc::EALREADY,
        Some((0, is_told)) if asked != b'?' => match std::mem::replace(is_told, true) && asked == b'c' {
            true => libc::EISCONN,
            false => 0,
        },
        Some((verdict, _)) => *verdict,
    };
    // A signal may have ended the call.
    let _ = asking.write_all(&answer.to_ne_bytes());
}

/// How long the program's files are.
const SENT: usize = 4 << 20;

/// Takes a file of the program's. Until it is whole, the last byte that has come is left in the socket, as Hoop's agent does.
fn take_file(reader: &mut BufReader<UnixStream>) {
    let (mut taken, mut some) = (0, vec![0; 64 << 10]);
    while taken < SENT {
        let waiting = usize::try_from(rustix::io::ioctl_fionread(reader.get_ref()).unwrap()).unwrap();
        let room = if taken + waiting >= SENT { SENT - taken } else { waiting.saturating_sub(1) }.min(some.len());
        if room == 0 {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        // The program's end ends the test.
        let Ok(read @ 1..) = reader.read(&mut some[..room]) else { return };
        assert!(some[..read].iter().enumerate().all(|(at, byte)| usize::from(*byte) == (taken + at) % 251));
        taken += read;
    }
}

/// Carries a connection whose line was read: sends back what comes, once it is made.
fn carry(mut reader: BufReader<UnixStream>, words: &[&str], verdicts: &Verdicts, decisions: &Decisions) {
    if let [destination, filled, number] = words {
        let number: [u8; 8] = hex::decode(number).unwrap().try_into().unwrap();
        let say = |verdict| {
            verdicts.0.lock().unwrap().insert(number, (verdict, false));
            verdicts.1.notify_all();
        };
        say(libc::EINPROGRESS);
        // Its bytes stay in the socket meanwhile, but for what the reader has taken.
        let Some(errno) = verdict(destination, decisions) else {
            // As long as the program is there, and longer.
            loop {
                std::thread::park();
            }
        };
        say(errno);
        if errno != 0 {
            return;
        }
        let mut filling = vec![0; filled.parse().unwrap()];
        if reader.read_exact(&mut filling).is_err() {
            return;
        }
        if destination.ends_with('6') {
            take_file(&mut reader);
        }
    }
    let (mut some, mut back) = ([0; 64], reader.get_ref().try_clone().unwrap());
    while let Ok(read @ 1..) = reader.read(&mut some) {
        if back.write_all(&some[..read]).is_err() {
            return;
        }
    }
}

/// Takes connections until the end. Returns where each wanted to go.
fn echo(listener: &UnixListener, asked: UnixListener, decisions: &Arc<Decisions>, is_over: &AtomicBool) -> Vec<String> {
    let (verdicts, (said, lines)) = (Verdicts::default(), mpsc::channel());
    let answering = verdicts.clone();
    std::thread::spawn(move || {
        for asking in asked.incoming().map_while(Result::ok) {
            let verdicts = answering.clone();
            std::thread::spawn(move || answer(asking, &verdicts));
        }
    });
    let mut taken = 0;
    for connection in listener.incoming().map_while(Result::ok) {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        taken += 1;
        let (verdicts, decisions, said) = (verdicts.clone(), decisions.clone(), said.clone());
        std::thread::spawn(move || {
            // No more than the line is taken out.
            let (mut reader, mut line) = (BufReader::with_capacity(1, connection), String::new());
            let _ = reader.read_line(&mut line);
            let words: Vec<_> = line.split_whitespace().collect();
            // A thread that its program's end met just here has said nothing.
            said.send(words.first().map(ToString::to_string)).unwrap();
            if words.is_empty() {
                return;
            }
            carry(reader, &words, &verdicts, &decisions);
        });
    }
    lines.iter().take(taken).flatten().collect()
}

/// Runs one way of the program to its end, without a network, and returns where it was carried to. Where there are several C libraries, all go the same way.
fn run(way: &str) -> Vec<String> {
    run_with(way, &[])
}

fn run_with(way: &str, variables: &[&str]) -> Vec<String> {
    let [first, others @ ..] = libraries_and_programs();
    let carried = run_beside(first, way, variables);
    for other in others {
        let also = run_beside(other, way, variables);
        // How often the hammering ones get through is chance.
        assert!(also == carried || carried.len() >= 300 && also.len() >= 300, "{way}: {other:?} went to {also:?}");
    }
    carried
}

fn run_beside(built: (&Path, &Path), way: &str, variables: &[&str]) -> Vec<String> {
    run_there(built, way, variables, false)
}

/// `is_linked`: the program reaches the agent's socket by links, as where `hoop agent` carries for `hoop run`.
fn run_there((library, program): (&Path, &Path), way: &str, variables: &[&str], is_linked: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent");
    let listener = UnixListener::bind(&path).unwrap();
    let asked = UnixListener::bind(folder.path().join("agent.asked")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let decisions = Arc::new(Decisions::default());
    let let_go = decisions.clone();
    let agent = std::thread::spawn(move || echo(&listener, asked, &decisions, &over));
    let mut command = Command::new("unshare");
    command.args(["--net", "--"]).arg("env").arg(format!("LD_PRELOAD={}", library.display())).args(variables);
    let mut reached = path.clone();
    if is_linked {
        reached = folder.path().join("link");
        symlink(&path, &reached).unwrap();
        symlink(folder.path().join("agent.asked"), folder.path().join("link.asked")).unwrap();
        command.arg(format!("HOOP_RUN_PEER={}", path.display()));
    }
    command.arg(format!("HOOP_RUN_SOCKET={}", reached.display())).arg(program).arg(way);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut said, mut some) = (running.stdout.take().unwrap(), [0; 64]);
    while let Ok(count @ 1..) = said.read(&mut some) {
        let_go.add(count);
    }
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{way}: {program:?} {} {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    is_over.store(true, Ordering::Relaxed);
    UnixStream::connect(&path).unwrap();
    agent.join().unwrap()
}

/// Where the program goes, as the agent is told.
const SOMEWHERE: &str = "10.9.1.1:80";

#[test]
fn link_local_addresses_of_both_families_are_left_alone() {
    assert_eq!(run("link-local"), [""; 0]);
}

#[test]
fn a_connection_that_is_opened_by_sending_is_carried() {
    assert_eq!(run("sendto"), [SOMEWHERE]);
    assert_eq!(run("sendmsg"), [SOMEWHERE; 2]);
    assert_eq!(run("fastopen-connect"), [SOMEWHERE]);
}

#[test]
fn children_of_a_program_with_threads_connect_and_do_not_hang() {
    assert!(run("fork").len() >= 300);
}

#[test]
fn a_signals_handler_may_connect_while_its_program_does() {
    assert!(run("signals").len() >= 3000);
}

#[test]
fn a_copied_or_inherited_descriptor_knows_its_peer() {
    assert_eq!(run("dup"), [SOMEWHERE]);
}

#[test]
fn an_agents_socket_that_is_reached_by_a_link_is_known() {
    for built in libraries_and_programs() {
        for way in ["options", "dup", "sendmsg"] {
            assert!(run_there(built, way, &[], true).contains(&SOMEWHERE.to_owned()), "{way}: {built:?}");
        }
    }
}

#[test]
fn options_and_kind_of_a_socket_outlive_its_connecting() {
    assert_eq!(run("options"), [SOMEWHERE]);
}

#[test]
fn a_connection_that_is_taken_back_leaves_a_socket_that_connects_again() {
    assert_eq!(run("disconnect"), [SOMEWHERE; 2]);
}

#[test]
fn an_address_of_another_family_than_the_sockets_is_the_kernels_error() {
    assert_eq!(run("families"), ["[::ffff:10.9.1.1]:80"]);
}

#[test]
fn a_connection_is_writable_once_it_is_made_in_sets_of_before_and_after() {
    assert_eq!(run("slow"), ["10.9.1.1:83", "10.9.1.1:84"]);
}

#[test]
fn a_refused_connection_says_so_once_and_its_socket_connects_again() {
    assert_eq!(run("refused"), ["10.9.1.1:81", "10.9.1.1:81", SOMEWHERE, "10.9.1.1:81", SOMEWHERE, "10.9.1.1:81"]);
}

/// The agent's end may be closed before the library has filled its own.
#[test]
fn a_connection_that_is_refused_at_once_says_so_each_time() {
    assert_eq!(run("refused-at-once"), ["10.9.1.1:85"; 300]);
}

#[test]
fn signals_and_timeouts_end_connecting_as_in_the_kernel() {
    assert_eq!(run("interrupted"), ["10.9.1.1:82", "10.9.1.1:82", "10.9.1.1:84"]);
}

#[test]
fn a_connection_is_made_at_once_where_that_is_asked_for() {
    assert_eq!(run_with("early", &["HOOP_RUN_EARLY=1"]), ["10.9.1.1:82"]);
}

#[test]
fn names_are_the_agents_to_look_up_where_that_is_asked_for() {
    assert_eq!(run_with("names", &["HOOP_RUN_REMOTE_DNS=1"]), [SOMEWHERE, "[::ffff:10.9.1.1]:80", SOMEWHERE]);
    assert_eq!(run("names-left-alone"), [""; 0]);
}

#[test]
fn messages_carry_bytes_alone_and_nobodys_address() {
    assert_eq!(run("messages"), [SOMEWHERE]);
}

#[test]
fn files_are_sent_whole_by_sendfile_and_splice() {
    assert_eq!(run("files"), ["10.9.1.1:86"; 4]);
}
