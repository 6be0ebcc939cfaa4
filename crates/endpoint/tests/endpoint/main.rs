//! Both ends over carriers: in memory, where they can be cut at any time and weeks pass in a moment, and over real ones.

mod common;
mod hostile;
mod offline;
mod pair;
mod real;
mod stored;
