//! Takes sealed uploads on the LAN and delivers them over the uplink.
