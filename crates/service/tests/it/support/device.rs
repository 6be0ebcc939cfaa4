//! A device: fetches tickets, seals requests, opens answers.

use super::{COOKIE, Sidecar, wire::Reply};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hoop_seal::{ContentKey, Layout, Prelude, RECORD_SIZE, Sealer, Suite, UploadKey};
use hoop_units::{ByteRange, UploadId};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A ticket with what belongs to it.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub id: String,
    pub ticket: Vec<u8>,
    pub key: UploadKey,
    pub token: String,
    pub suite: Suite,
}

pub fn decode(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap()
}

impl Ticket {
    pub fn parse(value: &Value) -> Self {
        Self {
            id: value["upload_id"].as_str().unwrap().to_owned(),
            ticket: decode(&value["ticket"]),
            key: UploadKey(decode(&value["key"]).try_into().unwrap()),
            token: value["token"].as_str().unwrap().to_owned(),
            suite: Suite::by_name(value["suite"].as_str().unwrap()).unwrap(),
        }
    }

    pub fn upload_id(&self) -> UploadId {
        self.id.parse().unwrap()
    }
}

/// Asks for tickets as the user with that cookie.
pub async fn ask(address: SocketAddr, cookie: &str, wanted: &Value) -> Reply {
    let fields = [("Hoop-Version", "1"), ("Content-Type", "application/json"), ("Cookie", cookie)];
    super::wire::send(address, "POST", "/hoop/tickets", &fields, wanted.to_string().as_bytes()).await
}

pub async fn ticket_at(address: SocketAddr, wanted: &Value) -> Ticket {
    let reply = ask(address, COOKIE, wanted).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    Ticket::parse(&reply.json()["tickets"][0])
}

/// Tickets for nobody in particular, who is at that address, for all that a proxy says.
pub async fn tickets_from(at: SocketAddr, address: &str, count: u8) -> Vec<Ticket> {
    let fields = [("Hoop-Version", "1"), ("Content-Type", "application/json"), ("X-Forwarded-For", address)];
    let wanted = json!({"count": count}).to_string();
    let reply = super::wire::send(at, "POST", "/hoop/tickets", &fields, wanted.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["tickets"].as_array().unwrap().iter().map(Ticket::parse).collect()
}

/// One of those.
pub async fn ticket_from(at: SocketAddr, address: &str) -> Ticket {
    tickets_from(at, address, 1).await.remove(0)
}

/// Puts the last record of an upload that claims to have so many bytes, and nothing else of it: the least that one has to send.
pub async fn begin(at: SocketAddr, ticket: &Ticket, address: &str, claimed: u64) -> Reply {
    let prelude = Prelude::new([3; 16], RECORD_SIZE, &ticket.ticket).unwrap();
    let records = claimed.div_ceil(RECORD_SIZE.into());
    let (last, total) = (records - 1, prelude.len() as u64 + (records - 1) * u64::from(RECORD_SIZE) + 40);
    let mut record = vec![0; 40 - 17];
    ContentKey::new(ticket.suite, &ticket.key, prelude.salt()).seal(last, true, &mut record);
    let range = format!("bytes {}-{}/{total}", total - 40, total - 1);
    let fields =
        [("Content-Range", range.as_str()), ("Hoop-Prelude", &prelude.to_header()), ("X-Forwarded-For", address)];
    super::wire::send(at, "PUT", &format!("/hoop/post/{}", ticket.id), &fields, &record).await
}

/// A ticket for any route, for Alice.
pub async fn ticket(sidecar: &Sidecar) -> Ticket {
    ticket_at(sidecar.address, &json!({})).await
}

/// The sealed request's head and body, with more fields.
pub fn plaintext(ticket: &Ticket, line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: photos.example\r\nContent-Type: application/octet-stream\r\n{fields}Content-Length: \
         {}\r\nHoop-Token: {}\r\n\r\n",
        body.len(),
        ticket.token
    );
    [head.as_bytes(), body].concat()
}

/// Z.
#[derive(Clone)]
pub struct Sealed {
    pub id: String,
    pub z: Vec<u8>,
    pub prelude: Prelude,
    pub layout: Layout,
}

/// Seals a plaintext.
pub fn seal_plaintext(ticket: &Ticket, plaintext: &[u8]) -> Sealed {
    let salt = super::bytes(16, plaintext.len() as u64 + 77).try_into().unwrap();
    seal_with_salt(ticket, plaintext, salt)
}

pub fn seal_with_salt(ticket: &Ticket, plaintext: &[u8], salt: [u8; 16]) -> Sealed {
    let prelude = Prelude::new(salt, RECORD_SIZE, &ticket.ticket).unwrap();
    let key = ContentKey::new(ticket.suite, &ticket.key, prelude.salt());
    let mut z = Vec::new();
    let mut sealer = Sealer::new(key, &prelude, &mut z);
    sealer.push(plaintext, &mut z);
    sealer.finish(&mut z);
    let layout = Layout::for_total(prelude.len(), RECORD_SIZE, z.len() as u64).unwrap();
    Sealed { id: ticket.id.clone(), z, prelude, layout }
}

/// Seals `POST /upload` with this body.
pub fn seal(ticket: &Ticket, body: &[u8]) -> Sealed {
    seal_plaintext(ticket, &plaintext(ticket, "POST /upload?from=test", "", body))
}

impl Sealed {
    /// Posts the whole.
    pub async fn post(&self, sidecar: &Sidecar) -> Reply {
        sidecar.send("POST", "/hoop/post", &[], &self.z).await
    }

    /// Posts the whole, which is taken.
    pub async fn is_taken_by(&self, sidecar: &Sidecar) {
        self.post(sidecar).await.is_taken();
    }

    /// The range of records `first..end`.
    pub fn records(&self, first: u64, end: u64) -> ByteRange {
        ByteRange::new(self.layout.record(first).start, self.layout.record(end - 1).end)
    }

    /// The request that puts a range.
    pub fn put_request(&self, range: ByteRange) -> Vec<u8> {
        let body = &self.z[range.start as usize..range.end as usize];
        let content_range = format!("bytes {range}/{}", self.z.len());
        let fields = [("Content-Range", content_range.as_str()), ("Hoop-Prelude", &self.prelude.to_header())];
        super::wire::request("PUT", &format!("/hoop/post/{}", self.id), &fields, body)
    }

    /// Puts a range.
    pub async fn put(&self, address: SocketAddr, range: ByteRange) -> Reply {
        super::wire::exchange(address, &self.put_request(range)).await.expect("an answer")
    }
}

/// The application's answer, opened.
pub fn open_answer(ticket: &Ticket, status: &Value) -> String {
    let sealed = decode(&status["answer"]);
    String::from_utf8(hoop_seal::answer::open(&ticket.key, ticket.upload_id(), &sealed).unwrap()).unwrap()
}
