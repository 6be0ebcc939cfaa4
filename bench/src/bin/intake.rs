//! Posts on loopback to disk: the gateway beside nginx (`dav_methods PUT`) and a plain C copy by `splice`, each as it is and with the same
//! syncing. Figure 8 of the HOOP paper, with more sizes and senders.
//!
//! The sender is the same for all: `sendfile` from a file in memory over connections that are kept alive as long as the server lets them. Servers take turns in each round. CPU seconds are the server's alone (user and system); resident is the peak, `VmHWM`.
//! The gateway's ordinary answer means *synced*; `--no-sync` is there to compare like with like.
//!
//! The gateway is the ordinary build; where memory is looked at, it is the one that routers get (`make router`).
//!
//! `--rounds N` runs more rounds; `--only posts`, `small` or `limited` one of the three tables; `--kb N` and `--clients N` one size and one number of senders
//! (no figure then).

use hoop_bench::chart::{Axis, Figure, Panel, Series};
use hoop_bench::peers::{Build, Cgroup, Peer};
use hoop_bench::posts::{Cost, SealedBody, run};
use hoop_bench::{Table, Verdict, median, number, rounds, spread, word};
use std::process::{Command, ExitCode};

/// Those that compare: ours first.
const UNSYNCED: [Peer; 3] = [Peer::GatewayUnsynced, Peer::Nginx, Peer::Splice];
const SYNCED: [Peer; 3] = [Peer::Gateway, Peer::NginxThenSynced, Peer::SpliceSynced];

/// A run moves so much at least, or it is over before anything is measured.
const RUN_BYTES: u64 = 300_000_000;

const CLIENTS: [u64; 3] = [1, 6, 64];

/// The width of a bar in the figures, six of which stand side by side.
const BAR: f64 = 0.14;

fn main() -> ExitCode {
    let mut verdict = Verdict::default();
    let only = word("--only");
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("posts") {
        println!("Megabytes a second:\n");
        table(&mut verdict, &[1_000_000, 10_000_000, 100_000_000], Unit::Megabytes, "intake");
    }
    if wanted("small") {
        println!("Small posts a second:\n");
        table(&mut verdict, &[50_000, 100_000, 200_000], Unit::Posts, "intake-small");
    }
    if wanted("limited") {
        println!("One post of 1 GiB, with and without a memory cgroup of 32 MiB:\n");
        limited(&mut verdict);
    }
    verdict.exit()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Megabytes,
    Posts,
}

impl Unit {
    /// Posts of a run: enough that it lasts.
    fn posts(self, size: u64, clients: u64) -> u64 {
        let least = match self {
            Self::Megabytes => RUN_BYTES.div_ceil(size),
            Self::Posts => 400,
        };
        least.max(clients)
    }

    fn rates(self, costs: &[Cost], body: &SealedBody, posts: u64) -> Vec<f64> {
        let amount = match self {
            Self::Megabytes => posts as f64 * body.len as f64 / 1e6,
            Self::Posts => posts as f64,
        };
        costs.iter().map(|cost| amount / cost.seconds).collect()
    }
}

/// All sizes over all numbers of clients, unsynced and synced; and the same as a figure.
fn table(verdict: &mut Verdict, sizes: &[u64], unit: Unit, name: &str) {
    let (kb, clients) = (number("--kb"), number("--clients"));
    let sizes: Vec<u64> = sizes.iter().copied().filter(|size| kb.is_none_or(|kb| *size == kb * 1000)).collect();
    let senders = CLIENTS.into_iter().filter(|count| clients.is_none_or(|clients| *count == clients));
    let bodies: Vec<SealedBody> = sizes.iter().map(|size| SealedBody::of_plaintext(*size)).collect();
    let (title, axis) = match unit {
        Unit::Megabytes => ("Posts to disk over loopback: 1, 6 and 64 senders", "MB/s"),
        Unit::Posts => ("Small posts to disk over loopback: 1, 6 and 64 senders", "posts/s"),
    };
    let mut table =
        Table::new(["post", "clients", "server", axis, "min-max", "of the best other", "CPU ms/post", "limit 0.9"]);
    let mut figure = Figure::new(title);
    for clients in senders {
        let mut bars: Vec<(Peer, Vec<(f64, f64)>)> = Vec::new();
        for (place, (size, body)) in sizes.iter().zip(&bodies).enumerate() {
            let posts = unit.posts(*size, clients);
            for (side, peers) in [UNSYNCED, SYNCED].into_iter().enumerate() {
                let costs = turns(&peers, |peer| measure(peer, Build::Ordinary, None, body, posts, clients));
                let rates: Vec<Vec<f64>> = costs.iter().map(|costs| unit.rates(costs, body, posts)).collect();
                for (index, peer) in peers.into_iter().enumerate() {
                    let others = rates.iter().enumerate().filter(|(other, _)| *other != index);
                    let best = others.map(|(_, rates)| median(rates)).fold(0.0, f64::max);
                    let (rate, (low, high)) = (median(&rates[index]), spread(&rates[index]));
                    let cpu: Vec<f64> = costs[index].iter().map(|cost| cost.cpu_seconds * 1e3 / posts as f64).collect();
                    let what = format!("{} kB, {clients} clients, {}", size / 1000, peer.name());
                    let limit = if peer.is_gateway() { verdict.at_least(&what, rate / best, 0.9) } else { "" };
                    table.row([
                        format!("{} kB", size / 1000),
                        clients.to_string(),
                        peer.name().to_owned(),
                        format!("{rate:.0}"),
                        format!("{low:.0}-{high:.0}"),
                        format!("{:.2}", rate / best),
                        format!("{:.2}", median(&cpu)),
                        limit.to_owned(),
                    ]);
                    let position = place as f64 + (side * 3 + index) as f64 * BAR - 2.5 * BAR;
                    match bars.iter_mut().find(|(other, _)| *other == peer) {
                        Some((_, points)) => points.push((position, rate)),
                        None => bars.push((peer, vec![(position, rate)])),
                    }
                }
            }
        }
        let names: Vec<String> = sizes.iter().map(|size| format!("{} kB", size / 1000)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let x = Axis::of_names(&format!("size of a post, {clients} at once"), &names);
        let panel = Panel::new(x, Axis::new(axis).from(0.0));
        let panel = bars
            .into_iter()
            .fold(panel, |panel, (peer, points)| panel.series(Series::bars(peer.name(), BAR * 0.9, points)));
        figure = figure.panel(panel);
    }
    println!("{}", table.render());
    if kb.is_none() && clients.is_none() {
        figure.save(name).expect("the figure is written");
    }
}

/// 1 GiB in one post: processor and memory.
fn limited(verdict: &mut Verdict) {
    let peers = [Peer::GatewayUnsynced, Peer::Nginx, Peer::Gateway, Peer::NginxThenSynced];
    let body = SealedBody::of_plaintext(1 << 30);
    let mut table =
        Table::new(["memory", "server", "MB/s, median", "min-max", "CPU s/GiB", "of nginx", "resident KiB", "limits"]);
    for limit in [None, Some(32 << 20)] {
        let memory = limit.map_or("free".to_owned(), |bytes: u64| format!("{} MiB", bytes >> 20));
        let costs = turns(&peers, |peer| measure(peer, Build::Router, limit, &body, 1, 1));
        for (index, peer) in peers.iter().enumerate() {
            let of =
                |index: usize, value: fn(&Cost) -> f64| median(&costs[index].iter().map(value).collect::<Vec<_>>());
            let speeds: Vec<f64> = costs[index].iter().map(|cost| body.len as f64 / 1e6 / cost.seconds).collect();
            let cpu = of(index, |cost| cost.cpu_seconds);
            // Each gateway is followed by its nginx.
            let of_nginx = cpu / of(index | 1, |cost| cost.cpu_seconds);
            let resident = of(index, |cost| cost.resident_kib);
            let (low, high) = spread(&speeds);
            let limits = match peer.is_gateway() {
                false => String::new(),
                true => {
                    let what = |figure: &str| format!("{memory}, {}, {figure}", peer.name());
                    let cpu = verdict.at_most(&what("CPU of nginx"), of_nginx, 1.0);
                    let resident = verdict.at_most(&what("resident KiB"), resident, 8192.0);
                    format!("CPU {cpu}, 8 MiB {resident}")
                }
            };
            table.row([
                memory.clone(),
                peer.name().to_owned(),
                format!("{:.0}", median(&speeds)),
                format!("{low:.0}-{high:.0}"),
                format!("{cpu:.2}"),
                format!("{of_nginx:.2}"),
                format!("{resident:.0}"),
                limits,
            ]);
        }
    }
    println!("{}", table.render());
}

/// What each peer's rounds cost. The order turns with each round, so that none always follows the same other.
fn turns(peers: &[Peer], measure: impl Fn(Peer) -> Cost) -> Vec<Vec<Cost>> {
    let mut costs = vec![Vec::new(); peers.len()];
    for round in 0..rounds() {
        for index in 0..peers.len() {
            let index = (index + round) % peers.len();
            costs[index].push(measure(peers[index]));
        }
    }
    costs
}

fn measure(peer: Peer, build: Build, limit: Option<u64>, body: &SealedBody, posts: u64, clients: u64) -> Cost {
    let folder = tempfile::Builder::new().prefix("hoop-intake").tempdir_in(".").expect("a folder on disk");
    let cgroup = limit.map(Cgroup::new);
    let server = peer.start(folder.path(), build, cgroup.as_ref());
    let cost = run(peer, &server, folder.path(), body, posts, clients);
    drop(server);
    drop(folder);
    // What one peer left unsynced is not for the next to pay.
    let _ = Command::new("sync").status();
    cost
}
