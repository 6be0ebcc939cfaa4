//! For fuzzing: what comes over a WebSocket, read however it is cut.

use super::frames::{Frames, Item, Role, Violation};
use super::lanes::{Key, LANES_MAX, Lanes, Read};
use bytes::BytesMut;

/// What was read: of each lane its bytes and how it stands, what this end has to say, and why it went no further, if it did not.
#[derive(PartialEq, Eq, Debug)]
pub struct Heard {
    /// What each lane's reader gets.
    pub lanes: Vec<(Vec<u8>, String)>,
    /// The heads of the messages that are due.
    pub said: Vec<Vec<u8>>,
    /// Pings that came.
    pub pings: Vec<Vec<u8>>,
    /// The violation.
    pub violation: Option<String>,
}

/// Reads `bytes` as a server does, `cut` at a time (all at once, if that is 0). Lanes are read as soon as they hold anything: how much memory that takes depends on the cuts.
///
/// # Panics
/// If more is held than there may be.
pub fn websocket(bytes: &[u8], cut: usize) -> Heard {
    let (mut frames, mut lanes) = (Frames::new(Role::Server), Lanes::new(false));
    // The same at a server that has no time to accept.
    let mut crowded = Lanes::new(false);
    let (mut keys, mut heard) =
        (Vec::new(), Heard { lanes: Vec::new(), said: Vec::new(), pings: Vec::new(), violation: None });
    let mut buffer = BytesMut::new();
    let cut = if cut == 0 { bytes.len().max(1) } else { cut };
    'bytes: for piece in bytes.chunks(cut) {
        buffer.extend_from_slice(piece);
        loop {
            match step(&mut frames, [&mut lanes, &mut crowded], &mut buffer, &mut heard.pings) {
                Ok(Step::More) => take(&mut lanes, &mut keys, &mut heard),
                Ok(Step::Unfinished) => break,
                // What comes behind it is not read.
                Ok(Step::Closed) => break 'bytes,
                Err(violation) => {
                    heard.violation = Some(violation.to_string());
                    break 'bytes;
                }
            }
        }
    }
    take(&mut lanes, &mut keys, &mut heard);
    for key in keys {
        lanes.drop_receiver(key);
        lanes.drop_sender(key);
    }
    while let Some(message) = lanes.next_message() {
        let mut head = Vec::new();
        message.put_head(&mut head);
        heard.said.push(head);
    }
    heard
}

enum Step {
    More,
    Unfinished,
    Closed,
}

/// Takes one frame, or what there is of it.
fn step(
    frames: &mut Frames,
    [lanes, crowded]: [&mut Lanes; 2],
    buffer: &mut BytesMut,
    pings: &mut Vec<Vec<u8>>,
) -> Result<Step, Violation> {
    match frames.take(buffer)? {
        Some(Item::Binary { first, last, bytes }) => {
            lanes.hear(first, last, bytes.clone())?;
            // What is a violation there, for that has said all at once, was none here.
            let _ = crowded.hear(first, last, bytes);
            while crowded.next_message().is_some() {}
            assert!(crowded.all_count(), "a lane is kept that is over");
        }
        Some(Item::Ping(bytes)) => pings.push(bytes.to_vec()),
        Some(Item::Pong) => {}
        Some(Item::Close(_)) => return Ok(Step::Closed),
        None => return Ok(Step::Unfinished),
    }
    Ok(Step::More)
}

/// Reads all lanes.
fn take(lanes: &mut Lanes, keys: &mut Vec<Key>, heard: &mut Heard) {
    while let Some((key, _)) = lanes.accept() {
        keys.push(key);
        heard.lanes.push((Vec::new(), String::new()));
    }
    assert!(keys.len() <= LANES_MAX, "{} lanes", keys.len());
    for (key, lane) in keys.iter().zip(&mut heard.lanes) {
        let before = lane.0.len();
        lane.1 = loop {
            match lanes.read(*key, usize::MAX) {
                Read::Data(bytes) => lane.0.extend_from_slice(&bytes),
                other => break format!("{other:?}"),
            }
        };
        assert!(lane.0.len() - before <= super::frames::MESSAGE_MAX, "{} held", lane.0.len() - before);
    }
    assert_eq!(lanes.held(), 0, "nothing waits, and something is held");
}
