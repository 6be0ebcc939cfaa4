//! The tests of the spool, one binary of them: each file is a module, and `cargo test -p hoop-spool model::` runs one. `powercut` has a
//! binary of its own: it runs itself, and all that it does to a folder is recorded.

mod crash;
mod damage;
mod devices;
mod early;
mod ended;
mod formats;
mod fsck;
mod model;
mod resources;
mod spool;
