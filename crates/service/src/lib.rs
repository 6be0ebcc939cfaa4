//! The sidecar in front of a web application: tickets, opening, replay, receipts.
