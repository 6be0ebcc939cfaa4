//! The HTTP plumbing that the shells share: problems, TLS, connections, a bounded server loop.
