//! How many places there are for what: [`Share`].

/// So many places for one kind of use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many.
    pub places: usize,
    /// How many may wait for one. Default: none.
    pub waits: usize,
    /// What the heads of those that wait may take, for each that may wait, in bytes as [`Place::brings`](crate::Place::brings) counts them. Whoever brings no more than that never
    /// makes way for longer ones. Default: any.
    pub head_bytes: usize,
    /// How many one client has at most. Default: all, since whoever holds most makes way for others.
    pub of_one: Option<usize>,
    /// Whether that holds for this machine's own programs, too: a proxy among them may speak for many. Default: yes.
    pub of_loopback: bool,
    /// Who has a place in it can be asked to come again at any time, as an idle connection, or a stream of events: it counts as behind from when it came.
    pub by_age: bool,
    /// Who has to make way in it is not remembered for that, as a proxy that speaks for many. Default: it is.
    pub forgives: bool,
}

impl Share {
    /// So many places for uses that ought to come to their end.
    pub const fn of(places: usize) -> Self {
        Self {
            places,
            waits: 0,
            head_bytes: usize::MAX,
            of_one: None,
            of_loopback: true,
            by_age: false,
            forgives: false,
        }
    }

    /// So many for uses that have no end of their own, of which the oldest may go.
    pub const fn by_age(places: usize) -> Self {
        Self { by_age: true, ..Self::of(places) }
    }

    /// So many may wait for them.
    #[must_use]
    pub const fn waits(self, waits: usize) -> Self {
        Self { waits, ..self }
    }

    /// Those that wait have heads of so many bytes each, on average.
    #[must_use]
    pub const fn heads(self, head_bytes: usize) -> Self {
        Self { head_bytes, ..self }
    }
}
