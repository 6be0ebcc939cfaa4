//! Real processes in a lab: a device, a gateway and a service, with the links between them that make Hoop worth having.
//!
//! ```text
//!  device ──── lan: 30 Mbit/s, 1 ms ──── gateway ──── uplink: 1.15 Mbit/s up, 12 down, 10 ms each way ──── service
//!                                                                                     photos.example, and the application
//! ```
//!
//! A [`House`] is built in network namespaces (see [`hoop_lab`]); the programs in it are the real `hoop` binary, real applications and
//! real clients. Whatever was started is stopped, and all files are removed, when the values go.

mod certificates;
mod house;
mod program;
mod roaming;

pub use certificates::Certificates;
pub use house::{HOOP, House, HouseConfig, ORIGIN, SERVICE, program_beside};
pub use program::{Program, StartError};
pub use roaming::Roaming;

use std::io;
use std::path::Path;

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// If it cannot be read.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
    let mut block = vec![0; 1 << 16];
    loop {
        match io::Read::read(&mut file, &mut block)? {
            0 => return Ok(hex::encode(hash.finish())),
            n => hash.update(&block[..n]),
        }
    }
}
