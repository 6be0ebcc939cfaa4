//! A gateway that lies: it stands before a true one, says of every upload that it is stored, and does something else.
//!
//!   lying-gateway LISTEN LIE [TRUE-GATEWAY]
//!
//! | LIE | what it does |
//! | --- | --- |
//! | `loses` | throws everything away, and says `stored` |
//! | `claims` | throws everything away, and says that the service has it |
//! | `forgets` | throws everything away, and knows nothing of it |
//! | `alters` | flips a bit in each record, and has the true gateway deliver that |
//! | `halves` | has the first half delivered |
//! | `swaps` | has each record delivered in another's place |
//! | `stretches` | has it delivered under a total that is a record longer |
//!
//! For tests alone. It takes what `hoop push` sends: `PUT` with `Content-Length`, one request at a time on each connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// The grid of docs/protocol.md §1.
const PRELUDE: usize = 128;
const RECORD: usize = 65_536;

#[derive(Clone, Debug)]
struct Liar {
    lie: String,
    truth: Option<SocketAddr>,
}

/// A request's head: its first line, and its fields with their names in lower case.
struct Head {
    line: String,
    fields: Vec<(String, String)>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "lying-gateway LISTEN LIE [TRUE-GATEWAY]";
    let [listen, lie, truth @ ..] = arguments.as_slice() else { panic!("{usage}") };
    let truth = truth.first().map(|address| address.parse().expect(usage));
    let liar = Arc::new(Liar { lie: lie.clone(), truth });
    let listener = TcpListener::bind(listen.as_str()).expect("the address is free");
    println!("listening on {listen}, and {lie}");
    for connection in listener.incoming().flatten() {
        let liar = liar.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(connection);
            while matches!(liar.serve(&mut reader), Ok(true)) {}
        });
    }
}

impl Head {
    fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" if lines.is_empty() => {}
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let fields = lines[1..].iter().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
        Ok(Some(Self { line: lines[0].clone(), fields }))
    }

    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// First, last and total of its `Content-Range`.
    fn range(&self) -> [usize; 3] {
        let numbers = self.field("content-range").trim_start_matches("bytes ").split(['-', '/']);
        let numbers: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
        numbers.try_into().unwrap_or_default()
    }

    fn id(&self) -> String {
        let path = self.line.split(' ').nth(1).unwrap_or_default();
        path.split(['/', '?', '=']).find(|part| part.len() == 32).unwrap_or_default().to_owned()
    }
}

impl Liar {
    /// Answers one request; false at the connection's end.
    fn serve(&self, reader: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let Some(head) = Head::read(reader)? else { return Ok(false) };
        let mut body = vec![0; head.field("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let id = head.id();
        let answer = match head.line.split(' ').next() {
            // Whoever waits for his ticket should wait for it: the lies are about whole uploads.
            Some("PUT") if !head.field("hoop-early").is_empty() => problem(428, "prelude-needed"),
            Some("PUT") => {
                let total = head.range()[2];
                self.mislead(&head, body)?;
                let receipt = format!(r#"{{"id":"{id}","state":"stored","stored":{total},"total":{total}}}"#);
                answer("201 Created", &id, "stored", total, &receipt)
            }
            _ if head.line.contains(" /monitor") => match self.lie.as_str() {
                "forgets" => problem(404, "upload-unknown"),
                "claims" => answer("200 OK", &id, "received", 0, r#"{"state":"received","missing":""}"#),
                _ => answer("200 OK", &id, "delivering", 0, r#"{"state":"delivering","missing":"","delivered":1}"#),
            },
            _ => problem(404, "upload-unknown"),
        };
        reader.get_mut().write_all(answer.as_bytes())?;
        Ok(true)
    }

    /// What it does with what it was given.
    fn mislead(&self, head: &Head, mut body: Vec<u8>) -> io::Result<()> {
        let [first, _, mut total] = head.range();
        let start = if first == 0 { PRELUDE } else { 0 };
        match self.lie.as_str() {
            "alters" => body[start..].iter_mut().skip(100).step_by(RECORD).for_each(|byte| *byte ^= 1),
            "halves" => {
                let records = (body.len() - start) / RECORD / 2;
                body.truncate(start + records * RECORD);
            }
            "swaps" => {
                let records = (body.len() - start) / RECORD;
                let (whole, _) = body[start..].split_at_mut(records * RECORD);
                whole.rotate_left(RECORD);
            }
            "stretches" => {
                let records = (body.len() - start) / RECORD;
                body.truncate(start + records * RECORD);
                total += RECORD;
            }
            _ => return Ok(()),
        }
        let Some(truth) = self.truth else { return Ok(()) };
        let last = first + body.len() - 1;
        let mut request = format!("{}\r\n", head.line);
        for (name, value) in &head.fields {
            let value = match name.as_str() {
                "content-length" => body.len().to_string(),
                "content-range" => format!("bytes {first}-{last}/{total}"),
                "host" => truth.to_string(),
                _ => value.clone(),
            };
            request += &format!("{name}: {value}\r\n");
        }
        request += "connection: close\r\n\r\n";
        let mut true_gateway = TcpStream::connect(truth)?;
        true_gateway.write_all(request.as_bytes())?;
        true_gateway.write_all(&body)?;
        io::copy(&mut true_gateway, &mut io::sink())?;
        Ok(())
    }
}

fn answer(status: &str, id: &str, state: &str, total: usize, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nHoop-Upload-Id: {id}\r\nHoop-State: {state}\r\n\
         Hoop-Total: {total}\r\nHoop-Missing: \r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn problem(status: u16, code: &str) -> String {
    let body =
        format!(r#"{{"type":"urn:hoop:error:{code}","code":"{code}","title":"","status":{status},"detail":""}}"#);
    let kind = "Content-Type: application/problem+json";
    format!("HTTP/1.1 {status} No\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
