//! SOCKS version 5 (RFC 1928): what a program says first, and what it is answered.
//!
//! There is one method, no authentication (0), since only the user's own programs get as far; and one command, CONNECT.
//!
//! ```text
//! greeting = 5 | count (1 byte) | methods          answer = 5 | 0
//! request  = 5 | command | 0 | address | port      answer = 5 | reply | 0 | 1 | 0.0.0.0 | 0
//! address  = 1 | 4 bytes, or 3 | length | name, or 4 | 16 bytes
//! ```

use crate::destination::Destination;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// What a program's first byte is if it speaks this version.
pub(crate) const VERSION: u8 = 5;

/// The reply to who is connected.
pub(crate) const CONNECTED: u8 = 0;

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const V4: u8 = 1;
const NAME: u8 = 3;
const V6: u8 = 4;

/// Replies to who asks for what there is not.
const GENERAL: u8 = 1;
const NO_COMMAND: u8 = 7;
const NO_ADDRESS_TYPE: u8 = 8;

/// Reads where a program wants to go. None: it was refused, and knows.
///
/// # Errors
/// If the connection ends, or says what is not SOCKS.
pub(crate) async fn accept(program: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Option<Destination>> {
    let [version, count] = read(program).await?;
    let mut methods = vec![0; count.into()];
    program.read_exact(&mut methods).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if !methods.contains(&NO_AUTHENTICATION) {
        program.write_all(&[VERSION, NO_METHOD]).await?;
        return Ok(None);
    }
    program.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _, kind] = read(program).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let host = match kind {
        V4 => Some(Ok(Ipv4Addr::from(read::<4>(program).await?).into())),
        V6 => Some(Ok(Ipv6Addr::from(read::<16>(program).await?).into())),
        NAME => {
            let [len] = read(program).await?;
            let mut name = vec![0; len.into()];
            program.read_exact(&mut name).await?;
            Some(Err(name))
        }
        _ => None,
    };
    let Some(host) = host else {
        reply(program, NO_ADDRESS_TYPE).await?;
        return Ok(None);
    };
    let port = u16::from_be_bytes(read(program).await?);
    if command != CONNECT {
        reply(program, NO_COMMAND).await?;
        return Ok(None);
    }
    let destination = match host {
        Ok(address) => Some(Destination::address(address, port)),
        // Some programs put an address there as text.
        Err(name) => std::str::from_utf8(&name).ok().and_then(|name| Destination::new(name, port)),
    };
    if destination.is_none() {
        reply(program, GENERAL).await?;
    }
    Ok(destination)
}

/// Says what became of it. Which address the relay has there is not said.
///
/// # Errors
/// If the connection has ended.
pub(crate) async fn reply(program: &mut (impl AsyncWrite + Unpin), reply: u8) -> io::Result<()> {
    program.write_all(&[VERSION, reply, 0, V4, 0, 0, 0, 0, 0, 0]).await
}

async fn read<const LEN: usize>(program: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    program.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// What a program that says this is taken for, and what it is answered.
    async fn said(bytes: &[u8]) -> (Option<String>, Vec<u8>) {
        let (mut program, mut ours) = duplex(1_024);
        program.write_all(bytes).await.unwrap();
        program.shutdown().await.unwrap();
        let accepted = accept(&mut ours).await;
        drop(ours);
        let mut answer = Vec::new();
        program.read_to_end(&mut answer).await.unwrap();
        (accepted.ok().flatten().map(|destination| destination.to_string()), answer)
    }

    #[tokio::test]
    async fn an_address_or_a_name_is_where_a_program_goes() {
        let hello = [5, 2, 2, 0];
        for (rest, destination) in [
            (&[5, 1, 0, 1, 192, 0, 2, 7, 0, 80][..], "192.0.2.7:80"),
            (
                &[5, 1, 0, 3, 11, b'e', b'x', b'a', b'm', b'p', b'l', b'e', b'.', b'c', b'o', b'm', 1, 187],
                "example.com:443",
            ),
            (&[5, 1, 0, 3, 9, b'1', b'9', b'2', b'.', b'0', b'.', b'2', b'.', b'7', 0, 80], "192.0.2.7:80"),
            (&[5, 1, 0, 4, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 22], "[2001:db8::1]:22"),
        ] {
            assert_eq!(said(&[&hello[..], rest].concat()).await, (Some(destination.to_owned()), vec![5, 0]));
        }
    }

    #[tokio::test]
    async fn what_there_is_not_is_refused_by_its_reply() {
        let reply = |reply| vec![5, 0, 5, reply, 0, 1, 0, 0, 0, 0, 0, 0];
        for (says, answer) in [
            // A password is wanted by nobody.
            (&[5, 1, 2][..], vec![5, 0xff]),
            (&[5, 0], vec![5, 0xff]),
            // BIND and UDP ASSOCIATE.
            (&[5, 1, 0, 5, 2, 0, 1, 192, 0, 2, 7, 0, 80], reply(7)),
            (&[5, 1, 0, 5, 3, 0, 1, 192, 0, 2, 7, 0, 80], reply(7)),
            (&[5, 1, 0, 5, 1, 0, 9, 192, 0, 2, 7, 0, 80], reply(8)),
            // Names that are none, and port 0.
            (&[5, 1, 0, 5, 1, 0, 3, 0, 0, 80], reply(1)),
            (&[5, 1, 0, 5, 1, 0, 3, 3, b'a', b'\n', b'b', 0, 80], reply(1)),
            (&[5, 1, 0, 5, 1, 0, 3, 2, 0xc3, 0x28, 0, 80], reply(1)),
        ] {
            assert_eq!(said(says).await, (None, answer), "{says:?}");
        }
    }

    #[tokio::test]
    async fn what_ends_early_or_is_another_protocol_is_an_error() {
        let whole = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
        for len in 0..whole.len() {
            assert_eq!(said(&whole[..len]).await.0, None);
        }
        for wrong in [
            &[4, 1, 0, 80, 192, 0, 2, 7, 0][..],
            &[5, 1, 0, 4, 1, 0, 1, 192, 0, 2, 7, 0, 80],
            b"GET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(said(wrong).await.0, None);
        }
    }
}
