//! Tickets and sealed bodies.
