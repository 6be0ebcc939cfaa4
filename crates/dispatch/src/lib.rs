//! Which range goes over which uplink, when, and how often.
