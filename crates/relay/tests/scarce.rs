//! A device's end whose process has no descriptor left. It is the only test of its process.
#![allow(missing_docs)]

use hoop_endpoint::FlowOptions;
use hoop_relay::preload::{PreloadServer, STATUS};
use hoop_relay::{Introduction, Link, introduce};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fmt::Debug;
use std::fs::File;
use std::future::pending;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The lines of the log.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Log;

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message;

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            LOG.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

/// How many lines of the log begin so, and how many say that there are more.
fn logged(words: &str) -> (usize, usize) {
    let log = LOG.lock().unwrap();
    let of = log.iter().filter(|line| line.starts_with(words));
    let more = of.clone().filter(|line| line.contains("more often")).count();
    (of.count() - more, more)
}

/// Takes each descriptor that there is.
fn take_all(taken: &mut Vec<File>) {
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
}

#[tokio::test]
async fn what_cannot_be_accepted_is_told_sixty_times_a_minute_at_most() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let told = introduce(&folder.path().join("devices.toml"), "localhost:1", None).unwrap();
    let introduction = Introduction { addresses: vec![[127, 0, 0, 1].into()], ..told };
    let link = Link::start(&introduction, Vec::new()).unwrap();
    let socket = folder.path().join("agent");
    let agent = PreloadServer::bind(&socket, FlowOptions::default()).unwrap().tell_status("title".into()).unwrap();
    let [_, asked] = PreloadServer::sockets(&socket);
    let status = folder.path().join(format!("agent{STATUS}"));
    // They wait to be accepted.
    let programs = [&socket, &asked, &status].map(|path| UnixStream::connect(path).unwrap());
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum: Some(200) }).unwrap();
    let mut taken = Vec::new();
    take_all(&mut taken);
    let begun = Instant::now();
    let running = agent.run(&link, pending(), |_| {});
    let watching = async {
        let (connections, questions) = ("cannot accept a connection", "cannot accept a question");
        // In a minute, more may be told.
        while begun.elapsed() < Duration::from_secs(45) {
            let (connection, question) = (logged(connections), logged(questions));
            assert!(connection.0 <= 60 && question.0 <= 120, "{connection:?} {question:?}");
            if (connection.1, question.1) == (1, 2) {
                sleep(Duration::from_secs(1)).await;
                assert_eq!((logged(connections), logged(questions)), ((60, 1), (120, 2)));
                return;
            }
            take_all(&mut taken);
            sleep(Duration::from_millis(1)).await;
        }
        panic!("{:?}", LOG.lock().unwrap());
    };
    let watched = async {
        tokio::select! {
            () = running => panic!("it ends"),
            () = watching => {}
        }
    };
    timeout(Duration::from_secs(50), watched).await.unwrap();
    drop(programs);
}
