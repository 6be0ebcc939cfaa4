//! Whose programs are served: [`Guests`].

use crate::owner::Owners;
use crate::shares::{Share, Shares};
use std::net::SocketAddr;
use std::sync::Arc;

/// Connections of one user at once, of so many of all: an eighth is left to the others.
pub(crate) const fn user_max(most: usize) -> usize {
    most - most / 8
}

/// Users, and how to find out whose a program is.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(crate) users: Vec<u32>,
    pub(crate) owners: Arc<Owners>,
}

impl Guests {
    /// Serves the program at the other end of a connection, as long as its user has a share of the connections.
    ///
    /// # Errors
    /// It is not served; and why, if somebody should know.
    pub(crate) async fn admit(
        &self,
        program: SocketAddr,
        ours: SocketAddr,
        shares: &Arc<Shares<u32>>,
    ) -> Result<Share<u32>, Option<String>> {
        match self.owners.of(program, ours).await {
            Ok(Some(user)) if self.users.contains(&user) => {
                let full = || Some(format!("a program of user {user} is refused: that user has too many connections"));
                shares.take(user).ok_or_else(full)
            }
            Ok(Some(user)) => Err(Some(format!("a program of user {user} is refused: --serve-user would let it in"))),
            // It has closed the connection already.
            Ok(None) => Err(None),
            Err(error) => Err(Some(format!("programs are refused: whose they are is not known: {error}"))),
        }
    }
}
