//! A simulated link: rate, delay, jitter, loss, queue, schedule.
