//! A little application: reads whole requests, counts them, and answers as it is told.

use super::PATIENCE;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request, as it came.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// The head, to the byte, without the empty line.
    pub head: String,
    /// What came of the body.
    pub body: Vec<u8>,
    /// Whether that was all of it.
    pub whole: bool,
}

impl Arrival {
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap()
    }

    pub fn fields(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    pub fn length(&self) -> usize {
        self.fields("content-length").first().map_or(0, |text| text.parse().unwrap())
    }
}

/// What to do with a request.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Read all, write these bytes, close.
    Answer(Vec<u8>),
    /// The same after a while.
    Late(Duration, Vec<u8>),
    /// Read so much of the body, write these bytes, close with the rest unread.
    Early(usize, Vec<u8>),
    /// Read so much of the body, and close without a word.
    Close(usize),
    /// Read all, and close without a word.
    TakeAndClose,
    /// Read all, and say nothing for ever.
    TakeAndKeep,
    /// Read nothing, say nothing.
    Deaf,
}

pub fn answer(head: &str, body: &str) -> Behaviour {
    Behaviour::Answer(format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

type Script = dyn Fn(usize, &Arrival) -> Behaviour + Send + Sync;

/// The application.
pub struct Upstream {
    pub address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    count: watch::Receiver<usize>,
    /// Requests whose head has come and whose answer has not begun: now, and the most so far.
    busy: Arc<(AtomicUsize, AtomicUsize)>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstream {
    /// One that accepts everything.
    pub async fn willing() -> Self {
        Self::new(|_, _| answer("201 Created", "{}")).await
    }

    /// One that asks `script` what to do, with the number of the connection and the head.
    pub async fn new(script: impl Fn(usize, &Arrival) -> Behaviour + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    pub fn on(listener: TcpListener, script: impl Fn(usize, &Arrival) -> Behaviour + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let (sender, count) = watch::channel(0);
        let (script, kept): (Arc<Script>, _) = (Arc::new(script), arrivals.clone());
        let busy = Arc::<(AtomicUsize, AtomicUsize)>::default();
        let counted = busy.clone();
        let task = tokio::spawn(async move {
            let sender = Arc::new(sender);
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, kept, sender) = (script.clone(), kept.clone(), sender.clone());
                let counted = counted.clone();
                tokio::spawn(async move {
                    serve(stream, number, &*script, &counted, |arrival| {
                        kept.lock().unwrap().push(arrival);
                        sender.send_modify(|count| *count += 1);
                    })
                    .await;
                });
            }
        });
        Self { address, arrivals, count, busy, task }
    }

    /// Everything that came, whole or not.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    /// What came whole.
    pub fn whole(&self) -> Vec<Arrival> {
        self.arrivals().into_iter().filter(|arrival| arrival.whole).collect()
    }

    /// The most requests that it had at once without having begun to answer.
    pub fn peak(&self) -> usize {
        self.busy.1.load(Ordering::SeqCst)
    }

    /// Waits until so many have come.
    pub async fn has(&self, wanted: usize) {
        let mut count = self.count.clone();
        let arrived = count.wait_for(|count| *count >= wanted);
        tokio::time::timeout(PATIENCE, arrived).await.expect("the request comes").unwrap();
    }
}

async fn serve(
    mut stream: TcpStream,
    number: usize,
    script: &Script,
    (busy, peak): &(AtomicUsize, AtomicUsize),
    arrived: impl FnOnce(Arrival),
) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let mut arrival = Arrival { head: String::from_utf8_lossy(&bytes[..end]).into_owned(), ..Arrival::default() };
    arrival.body = bytes[end + 4..].to_vec();
    let behaviour = script(number, &arrival);
    peak.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let wanted = match &behaviour {
        Behaviour::Answer(_) | Behaviour::Late(..) | Behaviour::TakeAndClose | Behaviour::TakeAndKeep => usize::MAX,
        Behaviour::Early(wanted, _) | Behaviour::Close(wanted) => *wanted,
        Behaviour::Deaf => 0,
    };
    let chunked = !arrival.fields("transfer-encoding").is_empty();
    let wanted = wanted.min(if chunked { usize::MAX } else { arrival.length() });
    while arrival.body.len() < wanted && !(chunked && arrival.body.ends_with(b"0\r\n\r\n")) {
        if stream.read_buf(&mut arrival.body).await.unwrap_or(0) == 0 {
            break;
        }
    }
    arrival.whole = chunked || arrival.body.len() == arrival.length();
    arrived(arrival);
    if let Behaviour::Late(wait, _) = behaviour {
        tokio::time::sleep(wait).await;
    }
    busy.fetch_sub(1, Ordering::SeqCst);
    match behaviour {
        Behaviour::Answer(answer) | Behaviour::Early(_, answer) | Behaviour::Late(_, answer) => {
            let _ = stream.write_all(&answer).await;
        }
        Behaviour::Close(_) | Behaviour::TakeAndClose => {}
        Behaviour::TakeAndKeep | Behaviour::Deaf => {
            // Until the other end has had enough.
            let mut rest = [0; 1];
            match behaviour {
                Behaviour::Deaf => std::future::pending().await,
                _ => drop(stream.read(&mut rest).await),
            }
        }
    }
}
