//! What a link promises, on any traffic: compared with theory and with simple references.

use hoop_netem::{
    Change, Delivery, GilbertElliott, Link, LinkConfig, Loss, OPPORTUNITY_BYTES, Parcel, Probability, QueueLimit, Rate,
    Trace,
};
use hoop_units::{Bitrate, Duration, Timestamp};
use proptest::prelude::*;

type Number = Parcel<u32>;

proptest! {
    #[test]
    fn no_packet_is_invented_or_doubled_and_all_are_accounted_for(
        config in any_config(), traffic in any_traffic(), seed: u64,
    ) {
        let mut link = Link::new(config, seed, Timestamp::ZERO);
        let delivered = run(&mut link, &traffic);
        let mut seen = vec![false; traffic.len()];
        for delivery in &delivered {
            let number = delivery.packet.content as usize;
            prop_assert_eq!(delivery.packet.bytes, traffic[number].1);
            prop_assert!(!std::mem::replace(&mut seen[number], true), "{} came twice", number);
            prop_assert!(delivery.at >= traffic[number].0, "{} came before it was sent", number);
        }
        let counters = link.counters();
        prop_assert_eq!(counters.entered_packets, traffic.len() as u64);
        prop_assert_eq!(counters.passed_packets, delivered.len() as u64);
        prop_assert_eq!(counters.passed_bytes, delivered.iter().map(|d| d.packet.bytes as u64).sum::<u64>());
        let rest = counters.entered_packets - counters.passed_packets - counters.dropped_packets();
        prop_assert_eq!(rest, link.held_packets() as u64);
    }

    #[test]
    fn order_is_kept_whatever_the_jitter_and_the_changes(
        config in any_config(), traffic in any_traffic(), seed: u64,
    ) {
        let delivered = run(&mut Link::new(config.reorder(false), seed, Timestamp::ZERO), &traffic);
        prop_assert!(delivered.windows(2).all(|pair| pair[0].packet.content < pair[1].packet.content));
        prop_assert!(delivered.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }

    #[test]
    fn the_same_seed_gives_the_same_result_and_being_late_changes_nothing(
        config in any_config(), traffic in any_traffic(), seed: u64, lateness in 1u64..50_000,
    ) {
        let prompt = run(&mut Link::new(config.clone(), seed, Timestamp::ZERO), &traffic);
        let again = run(&mut Link::new(config.clone(), seed, Timestamp::ZERO), &traffic);
        prop_assert_eq!(&prompt, &again);
        // This caller comes with packets, but late for every deadline.
        let mut link = Link::new(config, seed, Timestamp::ZERO);
        let late = run_late(&mut link, &traffic, Duration::from_micros(lateness));
        prop_assert_eq!(prompt, late);
    }

    #[test]
    fn departures_are_those_of_a_single_server_queue(
        bps in 1_000u64..1_000_000_000, queue_bytes in 0usize..20_000, traffic in any_traffic(),
    ) {
        let config = LinkConfig::new().rate(Bitrate::bps(bps)).queue(QueueLimit::bytes(queue_bytes));
        let delivered = run(&mut Link::new(config, 0, Timestamp::ZERO), &traffic);
        let found: Vec<_> = delivered.iter().map(|d| (d.packet.content, d.at.as_micros())).collect();
        prop_assert_eq!(found, single_server_queue(bps, queue_bytes, &traffic));
    }

    #[test]
    fn no_window_exceeds_the_links_rate_and_enough_traffic_reaches_it(
        bps in 10_000u64..1_000_000_000, sizes in prop::collection::vec(1usize..1_501, 2..200),
    ) {
        let config = LinkConfig::new().rate(Bitrate::bps(bps)).queue(QueueLimit::packets(usize::MAX));
        let traffic: Vec<_> = sizes.iter().map(|size| (Timestamp::ZERO, *size)).collect();
        let delivered = run(&mut Link::new(config, 0, Timestamp::ZERO), &traffic);
        // Between two departures, all bytes but the first packet's have been sent. A time is rounded up to 1 µs.
        for first in (0..delivered.len()).step_by(7) {
            let mut bits = 0;
            for delivery in &delivered[first + 1..] {
                bits += delivery.packet.bytes as u128 * 8;
                let nanos = (delivery.at - delivered[first].at).as_nanos();
                prop_assert!(bits * 1_000_000_000 <= u128::from(bps) * (nanos + 1_000), "too fast");
            }
        }
        let bits = sizes.iter().sum::<usize>() as u128 * 8;
        let ideal = bits * 1_000_000_000 / u128::from(bps);
        let nanos = u128::from(delivered.last().unwrap().at.as_micros()) * 1_000;
        prop_assert!(nanos <= ideal + 1_000 + sizes.len() as u128, "{} ns instead of {}", nanos, ideal);
    }

    #[test]
    fn the_queue_never_holds_more_than_its_bounds(
        bytes in 0usize..5_000, packets in 0usize..20, traffic in any_traffic(),
    ) {
        let config = LinkConfig::new().rate(Bitrate::kbps(100)).queue(QueueLimit { bytes, packets });
        let mut link = Link::new(config, 0, Timestamp::ZERO);
        run(&mut link, &traffic);
        let counters = link.counters();
        prop_assert!(counters.queue_bytes_peak <= bytes && counters.queue_packets_peak <= packets);
    }

    #[test]
    fn a_trace_passes_what_its_opportunities_allow_and_no_more(
        mut millis in prop::collection::vec(0u32..100, 1..50), size in 40usize..1_501,
    ) {
        millis.sort_unstable();
        millis.push(100);
        let config = LinkConfig::new().rate(trace(&millis)).queue(QueueLimit::packets(usize::MAX));
        // Enough for two rounds and more, there from the start.
        let count = (3 * millis.len() as u64 * OPPORTUNITY_BYTES).div_ceil(size as u64) as usize;
        let delivered = run(&mut Link::new(config, 0, Timestamp::ZERO), &vec![(Timestamp::ZERO, size); count]);
        // Opportunities at time zero are over when the packets come at time zero.
        let opportunities: Vec<u32> = [0, 100, 200].iter().flat_map(|start| millis.iter().map(move |at| start + at)).collect();
        for now in 0..=200 {
            let allowed = opportunities.iter().filter(|at| (1..=now).contains(*at)).count() as u64 * OPPORTUNITY_BYTES;
            let passed = delivered.iter().filter(|d| d.at <= Timestamp::from_millis(now.into())).count();
            prop_assert_eq!(passed as u64, allowed / size as u64, "by {} ms", now);
        }
    }

    #[test]
    fn a_change_of_rate_acts_on_the_packet_being_sent(
        before in 10_000u64..100_000_000, after in 10_000u64..100_000_000, at in 1u64..100_000,
    ) {
        let size = 15_000;
        let change = Change::new().rate(Bitrate::bps(after));
        let config = LinkConfig::new().rate(Bitrate::bps(before)).at(Duration::from_micros(at), change);
        let delivered = run(&mut Link::new(config, 0, Timestamp::ZERO), &[(Timestamp::ZERO, size)]);
        let bits = size as f64 * 8.0;
        let sent = before as f64 * at as f64 / 1e6;
        let micros = if sent >= bits {
            bits / before as f64 * 1e6
        } else {
            at as f64 + (bits - sent) / after as f64 * 1e6
        };
        let found = delivered[0].at.as_micros() as f64;
        prop_assert!((found - micros).abs() <= 1.01, "{} instead of {}", found, micros);
    }

    #[test]
    fn jitter_lies_between_zero_and_its_bound(jitter in 0u64..10_000, seed: u64) {
        let delay = Duration::from_millis(5);
        let config = LinkConfig::new().delay(delay).jitter(Duration::from_micros(jitter)).reorder(true);
        let traffic: Vec<_> = (0..50).map(|n| (Timestamp::from_millis(n), 100)).collect();
        for delivery in run(&mut Link::new(config, seed, Timestamp::ZERO), &traffic) {
            let took = delivery.at - traffic[delivery.packet.content as usize].0;
            prop_assert!(took >= delay && took <= delay + Duration::from_micros(jitter + 1));
        }
    }
}

#[test]
fn a_schedule_takes_effect_exactly() {
    let ms = Duration::from_millis;
    let config = LinkConfig::new()
        .delay(ms(5))
        .at(ms(10), Change::new().connected(false))
        .at(ms(20), Change::new().connected(true).delay(ms(1)))
        .at(ms(30), Change::new().loss(Loss::Independent(Probability::ONE)))
        .at(ms(40), Change::new().loss(Loss::None).rate(Bitrate::mbps(8)));
    // One packet just before, and one at, each change.
    let times = [9_999, 10_000, 19_999, 20_000, 29_999, 30_000, 39_999, 40_000];
    let traffic = times.map(|at| (Timestamp::from_micros(at), 1_000));
    let mut link = Link::new(config, 0, Timestamp::ZERO);
    let found: Vec<_> = run(&mut link, &traffic).iter().map(|d| (d.packet.content, d.at.as_micros())).collect();
    assert_eq!(found, [(0, 14_999), (3, 21_000), (4, 30_999), (7, 42_000)]);
    assert_eq!((link.counters().dropped_unconnected, link.counters().dropped_by_loss), (2, 2));
}

#[test]
fn a_cut_link_drops_queued_packets_and_delivers_those_on_the_wire() {
    // A packet takes 1 ms to send and 10 ms to arrive; the link is cut at 1.5 ms.
    let config = LinkConfig::new()
        .rate(Bitrate::mbps(8))
        .delay(Duration::from_millis(10))
        .at(Duration::from_micros(1_500), Change::new().connected(false));
    let mut link = Link::new(config, 0, Timestamp::ZERO);
    let delivered = run(&mut link, &[(Timestamp::ZERO, 1_000); 4]);
    assert_eq!(delivered, [Delivery { packet: Parcel::new(0, 1_000), at: Timestamp::from_millis(11) }]);
    assert_eq!(link.counters().dropped_unconnected, 3);
    assert_eq!(link.poll_timeout(), None);
}

#[test]
fn a_stalled_link_holds_its_queue_until_the_rate_returns() {
    let config = LinkConfig::new()
        .rate(Bitrate::bps(0))
        .queue(QueueLimit::packets(1))
        .at(Duration::from_secs(3_600), Change::new().rate(Bitrate::mbps(8)));
    let mut link = Link::new(config, 0, Timestamp::ZERO);
    let delivered = run(&mut link, &[(Timestamp::ZERO, 1_000); 3]);
    let times: Vec<_> = delivered.iter().map(|d| d.at - Timestamp::from_secs(3_600)).collect();
    assert_eq!(times, [Duration::from_millis(1), Duration::from_millis(2)]);
    assert_eq!(link.counters().dropped_by_queue, 1);
}

#[test]
fn turning_jitter_on_leaves_losses_as_they_were() {
    let loss = Loss::GilbertElliott(GilbertElliott::bursts(0.2, 3.0).unwrap());
    let traffic: Vec<_> = (0..1_000).map(|n| (Timestamp::from_millis(n), 100)).collect();
    let numbers = |config: LinkConfig| -> Vec<u32> {
        run(&mut Link::new(config, 9, Timestamp::ZERO), &traffic).iter().map(|d| d.packet.content).collect()
    };
    let plain = LinkConfig::new().loss(loss);
    assert_eq!(numbers(plain.clone()), numbers(plain.jitter(Duration::from_micros(900))));
}

#[test]
fn packets_share_an_opportunity_and_a_large_one_takes_several() {
    let mut link = Link::new(LinkConfig::new().rate(trace(&[10, 20, 30])), 0, Timestamp::ZERO);
    let delivered = run(&mut link, &[500, 700, 800, 2_000].map(|size| (Timestamp::ZERO, size)));
    // 500 and 700 at 10 ms, with 300 of the 800; its rest at 20 ms with 1,000 of the 2,000; the rest at 30 ms.
    let times: Vec<_> = delivered.iter().map(|d| d.at.as_micros() / 1_000).collect();
    assert_eq!(times, [10, 10, 20, 30]);
}

/// Hands in the traffic at its times, comes for every deadline in between and after, and collects what arrives.
fn run(link: &mut Link<Number>, traffic: &[(Timestamp, usize)]) -> Vec<Delivery<Number>> {
    let mut delivered = Vec::new();
    for (number, (at, size)) in (0..).zip(traffic) {
        while let Some(deadline) = link.poll_timeout().filter(|deadline| deadline < at) {
            link.handle_timeout(deadline);
            delivered.extend(std::iter::from_fn(|| link.poll_output()));
        }
        link.handle_input(Parcel::new(number, *size), *at);
        delivered.extend(std::iter::from_fn(|| link.poll_output()));
    }
    while let Some(deadline) = link.poll_timeout() {
        link.handle_timeout(deadline);
        delivered.extend(std::iter::from_fn(|| link.poll_output()));
    }
    delivered
}

/// The same, but for deadlines it comes late.
fn run_late(link: &mut Link<Number>, traffic: &[(Timestamp, usize)], late: Duration) -> Vec<Delivery<Number>> {
    for (number, (at, size)) in (0..).zip(traffic) {
        link.handle_input(Parcel::new(number, *size), *at);
    }
    let mut delivered = Vec::new();
    while let Some(deadline) = link.poll_timeout() {
        link.handle_timeout(deadline + late);
        delivered.extend(std::iter::from_fn(|| link.poll_output()));
    }
    delivered
}

/// The textbook's queue: departure = max(arrival, departure before) + size / rate, in nanoseconds.
fn single_server_queue(bps: u64, queue_bytes: usize, traffic: &[(Timestamp, usize)]) -> Vec<(u32, u64)> {
    let mut departures: Vec<(u32, usize, u64)> = Vec::new();
    for (number, (at, size)) in (0..).zip(traffic) {
        let now = at.as_micros() * 1_000;
        // Of those that are still there at `now`, the first is being sent and the others wait.
        let waiting: usize = departures.iter().filter(|d| d.2 > now).skip(1).map(|d| d.1).sum();
        let busy_until = departures.last().map_or(0, |d| d.2);
        if busy_until > now && waiting + size > queue_bytes {
            continue;
        }
        let time = (*size as u128 * 8_000_000_000).div_ceil(u128::from(bps)) as u64;
        departures.push((number, *size, busy_until.max(now) + time));
    }
    departures.into_iter().map(|(number, _, nanos)| (number, nanos.div_ceil(1_000))).collect()
}

fn trace(millis: &[u32]) -> Trace {
    let text: String = millis.iter().map(|at| format!("{at}\n")).collect();
    text.parse().expect("in order, and not of no duration")
}

/// Packets in order of time, in bursts and with pauses.
fn any_traffic() -> impl Strategy<Value = Vec<(Timestamp, usize)>> {
    let gap = prop_oneof![3 => Just(0u64), 2 => 1u64..200, 1 => 200u64..50_000];
    prop::collection::vec((gap, 1usize..1_501), 0..150).prop_map(|packets| {
        let at = |now: &mut Timestamp, (gap, size)| {
            *now += Duration::from_micros(gap);
            Some((*now, size))
        };
        packets.into_iter().scan(Timestamp::ZERO, at).collect()
    })
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let changes = prop::collection::vec((0u64..500_000, any_change()), 0..6);
    (any_change(), 0usize..30_000, any::<bool>(), changes).prop_map(|(first, queue, reorder, changes)| {
        // The first change is how the link is from the start.
        let plain = LinkConfig::new().queue(QueueLimit::bytes(queue)).reorder(reorder).at(Duration::ZERO, first);
        changes.into_iter().fold(plain, |config, (at, change)| config.at(Duration::from_micros(at), change))
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let rate = prop_oneof![
        Just(Rate::Unlimited),
        (10_000u64..1_000_000_000).prop_map(|bps| Bitrate::bps(bps).into()),
        prop::collection::vec(1u32..50, 1..20).prop_map(|mut millis| {
            millis.sort_unstable();
            trace(&millis).into()
        }),
    ];
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0f64..1.0).prop_map(|mean| Loss::Independent(Probability::new(mean).unwrap())),
        (0.0f64..0.5, 1.0f64..9.0)
            .prop_map(|(mean, burst)| Loss::GilbertElliott(GilbertElliott::bursts(mean, burst).unwrap())),
    ];
    let micros = || prop::option::of((0u64..20_000).prop_map(Duration::from_micros));
    (prop::option::of(rate), micros(), micros(), prop::option::of(loss), prop::option::of(any::<bool>()))
        .prop_map(|(rate, delay, jitter, loss, connected)| Change { rate, delay, jitter, loss, connected })
}
