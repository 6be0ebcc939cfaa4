//! Whose programs are served, and how much of the agent each user has: [`Guests`].

use crate::owner::Owners;
use crate::shares::{Share, Shares};
use hoop_endpoint::FLOWS_OF_DEVICE;
use std::net::SocketAddr;
use std::sync::Arc;

/// Programs' connections at once, at most: each has a descriptor. As many are taken in by a TUN interface. More wait in the kernel until one has ended.
pub const CONNECTIONS_MAX: usize = 4_096;

/// What one user has of so many, at most: an eighth is left to the others.
pub(crate) const fn user_max(most: usize) -> usize {
    most - most / 8
}

/// Users, and how to find out whose a program is.
///
/// A connection is one flow at a time, and one of HTTP/2 takes a share for each request besides. So a guest cannot take all flows that a relay gives this device.
#[derive(Debug)]
pub(crate) struct Guests {
    /// Whose agent it is.
    own: [u32; 2],
    /// Who is served besides.
    users: Vec<u32>,
    pub(crate) owners: Arc<Owners>,
    of_own: Arc<Shares<u32>>,
    of_guests: Arc<Shares<u32>>,
}

/// A program that is served, and its user's share.
#[derive(Debug)]
pub(crate) struct Admitted {
    is_guest: bool,
    share: Share<u32>,
}

impl Admitted {
    /// The program's user, unless it is the agent's own.
    pub(crate) fn guest(&self) -> Option<u32> {
        self.is_guest.then_some(self.share.whose())
    }

    /// Its user's share for one more flow; none: that user has all of them.
    pub(crate) fn another(&self) -> Option<Share<u32>> {
        self.share.another()
    }
}

impl Guests {
    /// The agent's `own` users, and those whom it serves besides.
    pub(crate) fn new(own: [u32; 2], users: Vec<u32>) -> Self {
        let (of_own, of_guests) = (Shares::new(user_max(CONNECTIONS_MAX)), Shares::new(user_max(FLOWS_OF_DEVICE)));
        Self { own, users, owners: Arc::default(), of_own, of_guests }
    }

    /// Serves the program at the other end of a connection, as long as its user has a share.
    ///
    /// # Errors
    /// It is not served; and why, if somebody should know.
    pub(crate) async fn admit(&self, program: SocketAddr, ours: SocketAddr) -> Result<Admitted, Option<String>> {
        let user = match self.owners.of(program, ours).await {
            Ok(Some(user)) => user,
            // It has closed the connection already.
            Ok(None) => return Err(None),
            Err(error) => return Err(Some(format!("programs are refused: whose they are is not known: {error}"))),
        };
        let is_guest = !self.own.contains(&user);
        if is_guest && !self.users.contains(&user) {
            return Err(Some(format!("a program of user {user} is refused: --serve-user would let it in")));
        }
        let shares = if is_guest { &self.of_guests } else { &self.of_own };
        let full = || Some(format!("a program of user {user} is refused: that user has too many connections"));
        shares.take(user).map(|share| Admitted { is_guest, share }).ok_or_else(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn a_guest_leaves_an_eighth_of_the_devices_flows_to_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = listener.local_addr().unwrap();
        let _program = TcpStream::connect(ours).await.unwrap();
        let (_ours, peer) = listener.accept().await.unwrap();
        let (user, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        let guests = Guests::new([other; 2], vec![user]);
        let mut admitted = Vec::new();
        while let Ok(program) = guests.admit(peer, ours).await {
            assert_eq!(program.guest(), Some(user));
            admitted.push(program);
        }
        assert_eq!(admitted.len(), 896);
        assert!(admitted[0].another().is_none(), "connections and flows beside them count together");
        admitted.pop();
        let flow = admitted[0].another();
        assert!(flow.is_some() && guests.admit(peer, ours).await.is_err());
        let own = Guests::new([user, other], vec![user]);
        let mut admitted = Vec::new();
        while admitted.len() < FLOWS_OF_DEVICE {
            admitted.push(own.admit(peer, ours).await.unwrap());
        }
        assert!(admitted.iter().all(|program| program.guest().is_none()), "whose agent it is has more");
    }
}
