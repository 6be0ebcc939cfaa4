//! Requests that may be made once alone, whose relay goes before the program has the answer: each is made once, or the program hears that nobody knows.

use crate::house::{head, origin};
use crate::lost::{Relayed, until};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// More than what is on its way between program and relay.
const LEN: usize = 24 << 20;

fn body(seed: u8) -> Vec<u8> {
    (0..LEN).map(|at| ((at / 251) ^ at) as u8 ^ seed).collect()
}

/// What has come whole: the method, and the body.
type Whole = (String, Vec<u8>);

/// A web server that notes what has come whole, and answers each once it may.
#[derive(Clone)]
struct Origin {
    came: Arc<Mutex<Vec<Whole>>>,
    may_answer: Arc<Semaphore>,
    answer: Arc<Vec<u8>>,
}

impl Origin {
    fn new(answers: usize) -> Self {
        let answer = Arc::new(b"taken".to_vec());
        Self { came: Arc::default(), may_answer: Arc::new(Semaphore::new(answers)), answer }
    }

    async fn run(&self) -> SocketAddr {
        let this = self.clone();
        origin(move |stream| {
            let this = this.clone();
            async move { drop(this.serve(stream).await) }
        })
        .await
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let request = head(&mut stream).await;
        let length = request.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await?;
        let method = request.split(' ').next().unwrap_or_default().to_owned();
        self.came.lock().unwrap().push((method, body));
        self.may_answer.acquire().await.expect("it stays").forget();
        stream
            .write_all(format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n", self.answer.len()).as_bytes())
            .await?;
        stream.write_all(&self.answer).await
    }

    fn count(&self) -> usize {
        self.came.lock().unwrap().len()
    }
}

async fn begin(relayed: &Relayed, method: &str, to: SocketAddr, length: usize) -> TcpStream {
    let mut program = relayed.house.program().await;
    let request = format!("{method} http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: {length}\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    program
}

/// The answer's head and body.
async fn answer(program: &mut TcpStream) -> (String, Vec<u8>) {
    let answer = async {
        let told = head(program).await;
        let length = told.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        program.read_exact(&mut body).await.unwrap();
        (told, body)
    };
    timeout(Duration::from_secs(60), answer).await.expect("it comes")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_goes_on_at_the_next_relay_and_is_made_once() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin::new(1);
    let mut program = begin(&relayed, "POST", origin.run().await, LEN).await;
    let whole = body(1);
    for quarter in whole.chunks(LEN / 4) {
        timeout(Duration::from_secs(60), program.write_all(quarter)).await.expect("it is taken").unwrap();
        relayed.kill().await;
        relayed.begin().await;
    }
    let (told, came) = answer(&mut program).await;
    assert!(told.starts_with("HTTP/1.1 201 ") && came == b"taken", "{told}");
    assert!(*origin.came.lock().unwrap() == [("POST".to_owned(), whole)], "{} came", origin.count());
    let uploads = relayed.state.as_ref().unwrap().join("uploads");
    until(|| {
        let entries = std::fs::read_dir(&uploads).unwrap().flatten().filter(|entry| entry.path().is_dir());
        entries.flat_map(|device| std::fs::read_dir(device.path()).unwrap()).count() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_lost_after_it_has_passed_an_upload_on_says_that_nobody_knows() {
    for (method, status, times) in [("POST", "502", 1), ("PUT", "201", 2)] {
        let mut relayed = Relayed::new(true).await;
        let origin = Origin::new(0);
        let mut program = begin(&relayed, method, origin.run().await, 5).await;
        program.write_all(b"bytes").await.unwrap();
        until(|| origin.count() == 1).await;
        relayed.kill().await;
        relayed.begin().await;
        // What goes to the first of them nobody reads.
        origin.may_answer.add_permits(2);
        let (told, came) = answer(&mut program).await;
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {told}");
        let says = String::from_utf8(came).unwrap();
        assert!(status != "502" || says.contains("nobody knows whether the web server has had this request"), "{says}");
        assert_eq!(origin.count(), times, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_has_come_is_on_disk_for_the_next_relay() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin { answer: Arc::new(body(2)), ..Origin::new(1) };
    let mut program = begin(&relayed, "POST", origin.run().await, 5).await;
    program.write_all(b"bytes").await.unwrap();
    let told = head(&mut program).await;
    assert!(told.starts_with("HTTP/1.1 201 "), "{told}");
    let mut first = vec![0; 100];
    program.read_exact(&mut first).await.unwrap();
    let objects = relayed.state.as_ref().unwrap().join("objects");
    until(|| {
        let devices = std::fs::read_dir(&objects).into_iter().flatten().flatten();
        let files = devices.flat_map(|device| std::fs::read_dir(device.path()).unwrap().flatten());
        files.filter(|file| file.path().extension().is_some_and(|kind| kind == "whole")).count() == 1
    })
    .await;
    relayed.kill().await;
    relayed.begin().await;
    let mut rest = vec![0; LEN - 100];
    timeout(Duration::from_secs(60), program.read_exact(&mut rest)).await.expect("it comes").unwrap();
    assert!([first, rest].concat() == body(2));
    assert_eq!(origin.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_with_another_disk_knows_nothing_of_is_not_made_twice() {
    let mut relayed = Relayed::new(true).await;
    let origin = Origin::new(9);
    let to = origin.run().await;
    let empty = |relayed: &Relayed| std::fs::remove_dir_all(relayed.state.as_ref().unwrap()).unwrap();
    // Half of it is lost with the disk, and no server has had it.
    let mut program = begin(&relayed, "POST", to, LEN).await;
    program.write_all(&body(3)[..LEN / 2]).await.unwrap();
    relayed.kill().await;
    empty(&relayed);
    relayed.begin().await;
    let (told, says) = answer(&mut program).await;
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    let says = String::from_utf8(says).unwrap();
    assert!(!says.contains("nobody knows"), "{says}");
    assert_eq!(origin.count(), 0);
    // All of it was given away.
    let waits = Origin::new(0);
    let mut program = begin(&relayed, "POST", waits.run().await, 5).await;
    program.write_all(b"bytes").await.unwrap();
    until(|| waits.count() == 1).await;
    relayed.kill().await;
    empty(&relayed);
    relayed.begin().await;
    let (told, says) = answer(&mut program).await;
    let says = String::from_utf8(says).unwrap();
    assert!(told.starts_with("HTTP/1.1 502 ") && says.contains("nobody knows"), "{told}{says}");
    assert_eq!(waits.count(), 1);
    // Of the first bytes nothing was let go of.
    let mut program = begin(&relayed, "POST", to, 5).await;
    sleep(Duration::from_millis(300)).await;
    relayed.kill().await;
    empty(&relayed);
    relayed.begin().await;
    // The agent has to know that the first relay is gone: what it gives that one nobody knows of.
    let mut another = begin(&relayed, "POST", to, 0).await;
    answer(&mut another).await;
    sleep(Duration::from_secs(1)).await;
    program.write_all(b"bytes").await.unwrap();
    let (told, _) = answer(&mut program).await;
    assert!(told.starts_with("HTTP/1.1 201 "), "{told}");
    assert_eq!(origin.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_disk_or_room_on_it_an_upload_is_passed_on_as_it_comes() {
    for has_state in [false, true] {
        let mut relayed = Relayed::new(has_state).await;
        if let Some(store) = &mut relayed.config.store {
            store.bytes_of_device = LEN as u64 / 2;
            relayed.kill().await;
            relayed.begin().await;
        }
        let origin = Origin::new(1);
        let to = origin.run().await;
        let mut program = begin(&relayed, "POST", to, LEN).await;
        program.write_all(&body(4)).await.unwrap();
        let (told, _) = answer(&mut program).await;
        assert!(told.starts_with("HTTP/1.1 201 "), "{told}");
        assert!(*origin.came.lock().unwrap() == [("POST".to_owned(), body(4))]);
        let mut program = begin(&relayed, "POST", to, LEN).await;
        program.write_all(&body(5)[..LEN / 2]).await.unwrap();
        relayed.kill().await;
        relayed.begin().await;
        let (told, _) = answer(&mut program).await;
        assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
        assert_eq!(origin.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_body_comes_as_it_is() {
    let relayed = Relayed::new(true).await;
    for answer in ["204 No Content\r\n", "200 OK\r\nContent-Length: 0\r\n"] {
        let to = origin(move |mut stream| async move {
            head(&mut stream).await;
            let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\n").as_bytes()).await;
        })
        .await;
        for _ in 0..50 {
            let mut program = begin(&relayed, "POST", to, 0).await;
            let told = head(&mut program).await;
            assert!(told.starts_with(&format!("HTTP/1.1 {}", &answer[..3])), "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_room_is_not_made_twice() {
    for length in [0, 5] {
        let mut relayed = Relayed::new(true).await;
        relayed.config.store.as_mut().unwrap().bytes_of_device = 1;
        relayed.kill().await;
        relayed.begin().await;
        let origin = Origin::new(0);
        let mut program = begin(&relayed, "POST", origin.run().await, length).await;
        program.write_all(&b"bytes"[..length]).await.unwrap();
        until(|| origin.count() == 1).await;
        relayed.kill().await;
        relayed.begin().await;
        let (told, says) = answer(&mut program).await;
        let says = String::from_utf8(says).unwrap();
        assert!(told.starts_with("HTTP/1.1 502 ") && says.contains("nobody knows"), "{told}{says}");
        assert_eq!(origin.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_leaves_ends_its_upload() {
    let relayed = Relayed::new(true).await;
    let origin = Origin::new(0);
    let mut program = begin(&relayed, "POST", origin.run().await, LEN).await;
    program.write_all(&body(6)[..LEN / 2]).await.unwrap();
    until(|| files(&relayed) == 2).await;
    drop(program);
    until(|| files(&relayed) == 0).await;
    assert_eq!(origin.count(), 0, "half of a request is none");
}

/// Files of uploads at the relay.
fn files(relayed: &Relayed) -> usize {
    let uploads = relayed.state.as_ref().unwrap().join("uploads");
    let entries = std::fs::read_dir(&uploads).unwrap().flatten().filter(|entry| entry.path().is_dir());
    entries.flat_map(|device| std::fs::read_dir(device.path()).unwrap()).count()
}

/// They stayed on the relay's disk for twelve hours: it knew that they had failed before it had heard of the device.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_fail_at_once_leave_nothing_behind() {
    let relayed = Relayed::new(true).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for _ in 0..100 {
        let mut program = begin(&relayed, "POST", closed, 1_000).await;
        program.write_all(&[b'x'; 1_000]).await.unwrap();
        let (told, _) = answer(&mut program).await;
        assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    }
    until(|| files(&relayed) == 0).await;
}

/// Some of them stayed on the relay's disk for twelve hours.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_whose_programs_leave_early_leave_nothing_behind() {
    let relayed = Relayed::new(true).await;
    let mut origin = Origin::new(200);
    origin.answer = Arc::new(vec![b'a'; 300_000]);
    let to = origin.run().await;
    for number in 0..200 {
        let mut program = begin(&relayed, "POST", to, 1_000).await;
        program.write_all(&[b'x'; 1_000]).await.unwrap();
        let mut first = [0; 100];
        timeout(Duration::from_secs(20), program.read_exact(&mut first)).await.expect("it comes").unwrap();
        assert!(first.starts_with(b"HTTP/1.1 201 "), "{number}");
    }
    assert_eq!(origin.count(), 200);
    until(|| files(&relayed) == 0).await;
}
