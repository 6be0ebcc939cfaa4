//! The simulated link on TUN devices between network namespaces.
