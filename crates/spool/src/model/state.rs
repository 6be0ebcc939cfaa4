//! Where an upload stands: [`State`].

use std::fmt;

/// Where an upload stands, as the gateway knows it (`docs/protocol.md` §8).
///
/// ```text
/// receiving → stored → delivering → received → held → accepted │ rejected │ unknown │ stopped
///     └──────────┴──────────┴───────────┴────────┴──→ expired │ refused │ and all of the above
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Some of it is stored; what is may be on its way to the service already.
    Receiving,
    /// All of it is stored.
    Stored,
    /// All of it is stored, and delivery has begun.
    Delivering,
    /// The service has all of it.
    Received,
    /// The service waits for its owner to sign in again.
    Held,
    /// The application has it.
    Accepted,
    /// The application refused it.
    Rejected,
    /// The application was handed it, and its answer was lost.
    Unknown,
    /// Its owner stopped it.
    Stopped,
    /// Its time is over.
    Expired,
    /// The service blames the upload.
    Refused,
}

impl State {
    /// Every state; the position of each is its number in the index.
    pub const ALL: [Self; 11] = [
        Self::Receiving,
        Self::Stored,
        Self::Delivering,
        Self::Received,
        Self::Held,
        Self::Accepted,
        Self::Rejected,
        Self::Unknown,
        Self::Stopped,
        Self::Expired,
        Self::Refused,
    ];

    /// Its name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receiving => "receiving",
            Self::Stored => "stored",
            Self::Delivering => "delivering",
            Self::Received => "received",
            Self::Held => "held",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Stopped => "stopped",
            Self::Expired => "expired",
            Self::Refused => "refused",
        }
    }

    /// The state of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether nothing can follow.
    pub const fn is_final(self) -> bool {
        self.rank() == FINAL
    }

    /// Whether Z's bytes are kept: not once the state is final, and not while the service, which has them all, waits
    /// for a person.
    pub const fn keeps_payload(self) -> bool {
        self.rank() < Self::Held.rank()
    }

    /// Whether bytes of it are of use here: until the service has all of it.
    pub const fn takes_bytes(self) -> bool {
        self.rank() < Self::Received.rank()
    }

    /// Whether all of Z was taken from the device.
    pub const fn is_whole(self) -> bool {
        !matches!(self, Self::Receiving)
    }

    /// Whether a service's word may make it `next`, or is the same. This is the one place that keeps a receipt from going
    /// backwards. That all of Z is stored, only a commit can say: until then delivery, which may have begun, leaves the state at
    /// [`State::Receiving`], unless the service has everything by another way.
    pub fn may_become(self, next: Self) -> bool {
        let only_by_commit = self == Self::Receiving && matches!(next, Self::Stored | Self::Delivering);
        self == next || (!self.is_final() && !only_by_commit && next.rank() > self.rank())
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Receiving => 0,
            Self::Stored => 1,
            Self::Delivering => 2,
            Self::Received => 3,
            Self::Held => 4,
            Self::Accepted | Self::Rejected | Self::Unknown | Self::Stopped | Self::Expired | Self::Refused => FINAL,
        }
    }

    pub(crate) fn number(self) -> u8 {
        let position = Self::ALL.iter().position(|state| *state == self);
        u8::try_from(position.expect("ALL has every state")).expect("there are eleven")
    }

    pub(crate) fn by_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The rank of the states that nothing follows.
const FINAL: u8 = 5;

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_never_goes_backwards_and_a_final_one_stays() {
        for from in State::ALL {
            for to in State::ALL {
                let allowed = from.may_become(to);
                if from == to {
                    assert!(allowed);
                } else if from.is_final() {
                    assert!(!allowed, "{from} → {to}");
                } else if from == State::Receiving && to.rank() < State::Received.rank() {
                    assert!(!allowed, "{from} → {to}: only a commit does that");
                } else {
                    assert_eq!(allowed, to.rank() > from.rank(), "{from} → {to}");
                    assert!(!(allowed && to.may_become(from)), "{from} ⇄ {to}");
                }
            }
        }
    }

    #[test]
    fn a_state_survives_its_name_and_its_number() {
        for state in State::ALL {
            assert_eq!(State::by_name(state.name()), Some(state));
            assert_eq!(State::by_number(state.number()), Some(state));
        }
        assert_eq!(State::by_name("replaying"), None);
        assert_eq!(State::by_number(11), None);
    }
}
