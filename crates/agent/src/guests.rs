//! Whose programs are served: [`Guests`].

use crate::owner::Owners;
use std::net::SocketAddr;
use std::sync::Arc;

/// Users, and how to find out whose a program is.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(crate) users: Vec<u32>,
    pub(crate) owners: Arc<Owners>,
}

impl Guests {
    /// Whether the program at the other end of a connection is served.
    ///
    /// # Errors
    /// It is not; and why, if somebody should know.
    pub(crate) async fn admit(&self, program: SocketAddr, ours: SocketAddr) -> Result<(), Option<String>> {
        match self.owners.of(program, ours).await {
            Ok(Some(user)) if self.users.contains(&user) => Ok(()),
            Ok(Some(user)) => Err(Some(format!("a program of user {user} is refused: --serve-user would let it in"))),
            // It has closed the connection already.
            Ok(None) => Err(None),
            Err(error) => Err(Some(format!("programs are refused: whose they are is not known: {error}"))),
        }
    }
}
