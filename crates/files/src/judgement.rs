//! Whether a folder is its owner's alone, from what is known of it: [`judge`].

/// What is known of a folder that is to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Who uses it.
    pub me: u32,
    /// Whose it is.
    pub owner: u32,
    /// Its permission bits, with the sticky bit.
    pub mode: u32,
    /// Whether there is nothing in it.
    pub is_empty: bool,
    /// Whose the symbolic link is by which it was named, if it was by one.
    pub link_owner: Option<u32>,
    /// Whether a folder above it lets anybody rename what is in it: writable for all, and not sticky.
    pub is_movable: bool,
}

/// What is to be done with a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is its owner's alone.
    Private,
    /// Others may look into it, and nobody may have changed anything: take these rights away.
    Narrow,
    /// It is not safe, and cannot be made so here.
    Refuse(Refusal),
}

/// Why a folder is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Somebody else owns it.
    #[error("it belongs to another user (id {0})")]
    Foreign(u32),
    /// Such as `/tmp`.
    #[error("it is a place for everybody (sticky, like /tmp); name a folder within it")]
    Shared,
    /// Others may have put something there.
    #[error("others may write to it (mode {0:o}), and it is not empty; look at what is in it, then chmod 700 it")]
    Writable(u32),
    /// Whoever owns the link decides where it leads.
    #[error("it is a symbolic link of another user (id {0})")]
    ForeignLink(u32),
    /// It can be moved away.
    #[error("a folder above it may be written to by anybody, who could put another in its place")]
    Movable,
}

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Judges a folder. A link of root's is followed: systemd makes one for the state of a service with a user of its own.
pub const fn judge(facts: &Facts) -> Verdict {
    let Facts { me, owner, mode, is_empty, link_owner, is_movable } = *facts;
    if let Some(link) = link_owner
        && link != me
        && link != ROOT
    {
        return Verdict::Refuse(Refusal::ForeignLink(link));
    }
    if mode & STICKY != 0 {
        return Verdict::Refuse(Refusal::Shared);
    }
    if owner != me {
        return Verdict::Refuse(Refusal::Foreign(owner));
    }
    if is_movable {
        return Verdict::Refuse(Refusal::Movable);
    }
    if mode & OTHERS_WRITE != 0 && !is_empty {
        return Verdict::Refuse(Refusal::Writable(mode & 0o777));
    }
    match mode & OTHERS {
        0 => Verdict::Private,
        _ => Verdict::Narrow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Facts = Facts { me: 7, owner: 7, mode: 0o700, is_empty: false, link_owner: None, is_movable: false };

    #[test]
    fn a_folder_is_used_narrowed_or_refused_as_the_table_says() {
        use Refusal::{Foreign, ForeignLink, Movable, Shared, Writable};
        for (facts, verdict) in [
            (MINE, Verdict::Private),
            (Facts { mode: 0o500, ..MINE }, Verdict::Private),
            (Facts { mode: 0o755, ..MINE }, Verdict::Narrow),
            (Facts { mode: 0o710, ..MINE }, Verdict::Narrow),
            (Facts { mode: 0o701, ..MINE }, Verdict::Narrow),
            (Facts { mode: 0o775, ..MINE }, Verdict::Refuse(Writable(0o775))),
            (Facts { mode: 0o702, ..MINE }, Verdict::Refuse(Writable(0o702))),
            (Facts { mode: 0o777, is_empty: true, ..MINE }, Verdict::Narrow),
            (Facts { mode: 0o1777, ..MINE }, Verdict::Refuse(Shared)),
            (Facts { mode: 0o1777, is_empty: true, ..MINE }, Verdict::Refuse(Shared)),
            (Facts { owner: 8, ..MINE }, Verdict::Refuse(Foreign(8))),
            (Facts { owner: 0, ..MINE }, Verdict::Refuse(Foreign(0))),
            (Facts { me: 0, ..MINE }, Verdict::Refuse(Foreign(7))),
            (Facts { link_owner: Some(7), ..MINE }, Verdict::Private),
            (Facts { link_owner: Some(0), ..MINE }, Verdict::Private),
            (Facts { link_owner: Some(8), ..MINE }, Verdict::Refuse(ForeignLink(8))),
            (Facts { is_movable: true, ..MINE }, Verdict::Refuse(Movable)),
        ] {
            assert_eq!(judge(&facts), verdict, "{facts:?}");
        }
    }
}
