//! The carriers of a server: [`Carriers`].

use crate::flow::CarrierId;
use hoop_carrier::{Carrier, Kind};
use hoop_flow::DeviceId;
use hoop_units::AddressKey;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// This many carriers of one device have full windows: 80 MiB of what comes before its turn in all. Each further one has a stranger's window, 128 KiB: 124 MiB for the rest of
/// 1,024. Each program under `hoop run` has a carrier, and few carry much at a time.
const WIDE: usize = 32;

/// Holder a carrier is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// A device's: a flow of this one was attached over it, which takes a key.
    Device(DeviceId),
    /// Anybody's, at this address if it has one.
    Stranger(Option<AddressKey>),
}

/// How many there may be at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct CarrierLimits {
    /// Carriers.
    pub(super) all: usize,
    /// Those of them that are WebSockets.
    pub(super) websockets: usize,
    /// Those of strangers.
    pub(super) strangers: usize,
    /// Those of strangers at one address.
    pub(super) of_address: usize,
}

/// A server's carriers, within limits. Strangers get the places that devices leave, up to a share. When those are full, the address with the most loses its oldest. WebSockets
/// have places of their own, and the same rule.
#[derive(Default)]
pub(super) struct Carriers {
    all: BTreeMap<CarrierId, (Arc<dyn Carrier>, Holder)>,
    /// How many strangers each address has; those without one are of none.
    strangers: HashMap<Option<AddressKey>, usize>,
    /// How many strangers there are.
    unknown: usize,
    /// How many are WebSockets.
    websockets: usize,
    /// How many each device has.
    devices: HashMap<DeviceId, usize>,
}

fn is_websocket(carrier: &Arc<dyn Carrier>) -> bool {
    carrier.kind() == Kind::WebSocket
}

impl Carriers {
    /// Takes one in, with a higher number than any so far. Gives what is to be closed: the one that makes way, or itself.
    pub(super) fn add(
        &mut self,
        id: CarrierId,
        carrier: &Arc<dyn Carrier>,
        most: CarrierLimits,
    ) -> Option<Arc<dyn Carrier>> {
        let address = carrier.peer().map(AddressKey::from_ip);
        let mut out = None;
        // Who holds carriers idle and has no key must not keep devices of the same address out.
        let is_crowded = address.is_some() && self.strangers.get(&address).copied() >= Some(most.of_address);
        if is_websocket(carrier) && self.websockets >= most.websockets {
            let from = self.fullest_of_websockets();
            let is_from = |whose: &Holder| from.is_some_and(|at| *whose == Holder::Stranger(at));
            let oldest = self.all.iter().find(|(_, (other, whose))| is_from(whose) && is_websocket(other));
            match oldest.map(|(id, _)| *id).and_then(|id| self.remove(id)) {
                Some(oldest) => out = Some(oldest),
                None => return Some(carrier.clone()),
            }
        } else if is_crowded || self.unknown >= most.strangers || self.all.len() >= most.all {
            let from = if is_crowded { Some(address) } else { self.fullest() };
            let oldest = self.all.iter().find(|(_, (_, whose))| from.is_some_and(|at| *whose == Holder::Stranger(at)));
            match oldest.map(|(id, _)| *id).and_then(|id| self.remove(id)) {
                Some(oldest) => out = Some(oldest),
                None => return Some(carrier.clone()),
            }
        }
        *self.strangers.entry(address).or_default() += 1;
        self.unknown += 1;
        self.websockets += usize::from(is_websocket(carrier));
        self.all.insert(id, (carrier.clone(), Holder::Stranger(address)));
        out
    }

    /// Where most strangers are; of equals, where one has been for longest.
    fn fullest(&self) -> Option<Option<AddressKey>> {
        let most = self.strangers.values().max()?;
        let at = |whose: &Holder| match whose {
            Holder::Stranger(at) => Some(*at),
            Holder::Device(_) => None,
        };
        let mut strangers = self.all.values().filter_map(|(_, whose)| at(whose));
        strangers.find(|at| self.strangers.get(at) == Some(most))
    }

    /// Where most strangers' WebSockets are; of equals, where one has been for longest.
    fn fullest_of_websockets(&self) -> Option<Option<AddressKey>> {
        let mut counts = HashMap::<_, (usize, Reverse<CarrierId>)>::new();
        for (id, (carrier, whose)) in &self.all {
            if let Holder::Stranger(at) = whose
                && is_websocket(carrier)
            {
                counts.entry(*at).or_insert((0, Reverse(*id))).0 += 1;
            }
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(at, _)| at)
    }

    /// A flow of this device was attached over it; it is told so if it is one of the first [`WIDE`]. Gives it back, to be closed, if the device has `most` others.
    pub(super) fn assign_to_device(&mut self, id: CarrierId, host: DeviceId, most: usize) -> Option<Arc<dyn Carrier>> {
        let (carrier, whose) = self.all.get_mut(&id)?;
        if matches!(whose, Holder::Device(_)) {
            return None;
        }
        let (carrier, was) = (carrier.clone(), std::mem::replace(whose, Holder::Device(host)));
        self.forget(was);
        let count = self.devices.entry(host).or_default();
        *count += 1;
        if *count <= WIDE {
            carrier.set_known();
        }
        if *count > most { self.remove(id) } else { None }
    }

    /// It is gone.
    pub(super) fn remove(&mut self, id: CarrierId) -> Option<Arc<dyn Carrier>> {
        let (carrier, whose) = self.all.remove(&id)?;
        self.forget(whose);
        self.websockets -= usize::from(is_websocket(&carrier));
        Some(carrier)
    }

    fn forget(&mut self, whose: Holder) {
        match whose {
            Holder::Stranger(address) => {
                self.unknown -= 1;
                one_less(&mut self.strangers, address);
            }
            Holder::Device(host) => one_less(&mut self.devices, host),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Closes those of a device.
    pub(super) fn close_of(&self, host: DeviceId) {
        let own = self.all.values().filter(|(_, whose)| *whose == Holder::Device(host));
        own.for_each(|(carrier, _)| carrier.close());
    }

    /// Closes them all.
    pub(super) fn close(&self) {
        self.all.values().for_each(|(carrier, _)| carrier.close());
    }
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_carrier::{Lane, Pending, memory_pair};
    use hoop_flow::Binding;
    use std::io;
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    const HOST: DeviceId = DeviceId([1; 20]);

    const fn most(all: usize, strangers: usize, of_address: usize) -> CarrierLimits {
        CarrierLimits { all, websockets: all, strangers, of_address }
    }

    /// A carrier of some kind from an address.
    #[derive(Debug)]
    struct From(Arc<dyn Carrier>, IpAddr, AtomicBool, Kind);

    impl Carrier for From {
        fn kind(&self) -> Kind {
            self.3
        }
        fn binding(&self) -> Binding {
            self.0.binding()
        }
        fn peer(&self) -> Option<IpAddr> {
            Some(self.1)
        }
        fn open(&self) -> Pending<'_, io::Result<Lane>> {
            self.0.open()
        }
        fn accept(&self) -> Pending<'_, io::Result<Lane>> {
            self.0.accept()
        }
        fn rtt(&self) -> Option<std::time::Duration> {
            None
        }
        fn closed(&self) -> Pending<'_, io::Error> {
            self.0.closed()
        }
        fn close(&self) {
            self.0.close();
        }
        fn set_known(&self) {
            self.2.store(true, Ordering::Relaxed);
        }
    }

    fn from(address: &str) -> Arc<dyn Carrier> {
        of_kind(Kind::Memory, address)
    }

    fn of_kind(kind: Kind, address: &str) -> Arc<dyn Carrier> {
        let (carrier, _) = memory_pair(Binding([0; 32]));
        Arc::new(From(Arc::new(carrier), address.parse().unwrap(), AtomicBool::new(false), kind))
    }

    #[test]
    fn strangers_make_way_the_oldest_first_and_devices_never() {
        let mut carriers = Carriers::default();
        let all: Vec<_> = (0..5).map(|at| from(&format!("192.0.2.{at}"))).collect();
        let add = |carriers: &mut Carriers, at: u64| carriers.add(CarrierId(at), &all[at as usize], most(3, 9, 9));
        for at in 0..3 {
            assert!(add(&mut carriers, at).is_none());
        }
        assert!(carriers.assign_to_device(CarrierId(0), HOST, 9).is_none());
        assert!(Arc::ptr_eq(&add(&mut carriers, 3).unwrap(), &all[1]), "the oldest that is no device's");
        carriers.assign_to_device(CarrierId(2), HOST, 9);
        carriers.assign_to_device(CarrierId(3), HOST, 9);
        assert!(Arc::ptr_eq(&add(&mut carriers, 4).unwrap(), &all[4]), "all are devices'");
    }

    #[test]
    fn an_address_has_so_many_strangers_and_any_number_of_devices() {
        let mut carriers = Carriers::default();
        let mut id = 0;
        let mut add = |carriers: &mut Carriers, address: &str| {
            id += 1;
            (CarrierId(id), carriers.add(CarrierId(id), &from(address), most(99, 99, 2)).is_none())
        };
        let (first, other) = (add(&mut carriers, "192.0.2.1"), add(&mut carriers, "192.0.2.2"));
        let second = add(&mut carriers, "192.0.2.1");
        assert!(first.1 && other.1 && second.1);
        carriers.assign_to_device(first.0, HOST, 9);
        assert!(add(&mut carriers, "192.0.2.1").1, "one of them is a device's");
        assert!(!add(&mut carriers, "192.0.2.1").1, "the oldest stranger of the address makes way");
        assert!(carriers.remove(second.0).is_none(), "it is gone, and nobody else");
        assert!(carriers.remove(first.0).is_some() && carriers.remove(other.0).is_some());
    }

    #[test]
    fn strangers_have_their_share_and_make_way_where_most_are() {
        let mut carriers = Carriers::default();
        let mut id = 0;
        let mut add = |carriers: &mut Carriers, address: &str| {
            id += 1;
            let carrier = from(address);
            let out = carriers.add(CarrierId(id), &carrier, most(99, 4, 9));
            assert!(out.as_ref().is_none_or(|out| !Arc::ptr_eq(out, &carrier)), "there is always room for one more");
            out.and_then(|out| out.peer()).map(|peer| peer.to_string())
        };
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"] {
            assert_eq!(add(&mut carriers, address), None);
        }
        assert_eq!(add(&mut carriers, "192.0.2.4").as_deref(), Some("192.0.2.2"));
        assert_eq!(add(&mut carriers, "192.0.2.5").as_deref(), Some("192.0.2.1"), "all have one: the oldest");
        assert!(carriers.assign_to_device(CarrierId(3), HOST, 9).is_none());
        assert_eq!(add(&mut carriers, "192.0.2.6"), None, "what a device has is no stranger's");
        assert_eq!(carriers.len(), 5);
    }

    /// A WebSocket takes a descriptor, and a carrier of QUIC none.
    #[test]
    fn websockets_have_places_of_their_own_and_make_way_for_each_other() {
        let mut carriers = Carriers::default();
        let most = CarrierLimits { websockets: 2, ..most(9, 9, 9) };
        let websocket = |at| of_kind(Kind::WebSocket, &format!("192.0.2.{at}"));
        let all: Vec<Arc<dyn Carrier>> = (0..5).map(websocket).collect();
        assert!(carriers.add(CarrierId(0), &from("198.51.100.1"), most).is_none());
        assert!(carriers.add(CarrierId(1), &all[0], most).is_none());
        assert!(carriers.add(CarrierId(2), &all[1], most).is_none());
        let out = carriers.add(CarrierId(3), &all[2], most).unwrap();
        assert!(Arc::ptr_eq(&out, &all[0]), "the oldest stranger of them");
        assert!(carriers.add(CarrierId(4), &from("198.51.100.2"), most).is_none(), "one of QUIC has room");
        for id in [2, 3] {
            carriers.assign_to_device(CarrierId(id), HOST, 9);
        }
        let out = carriers.add(CarrierId(5), &all[3], most).unwrap();
        assert!(Arc::ptr_eq(&out, &all[3]), "all are devices'");
        carriers.remove(CarrierId(2));
        assert!(carriers.add(CarrierId(6), &all[4], most).is_none());
    }

    /// Devices have all places but a few.
    #[test]
    fn an_address_with_many_strange_websockets_makes_way_for_others() {
        let mut carriers = Carriers::default();
        let most = CarrierLimits { websockets: 4, ..most(99, 99, 99) };
        let (mut id, mut all) = (0, Vec::new());
        let mut add = |carriers: &mut Carriers, address: &str| {
            id += 1;
            let carrier = of_kind(Kind::WebSocket, address);
            all.push(carrier.clone());
            carriers.add(CarrierId(id), &carrier, most).and_then(|out| out.peer()).map(|peer| peer.to_string())
        };
        assert_eq!(add(&mut carriers, "198.51.100.1"), None);
        assert!(carriers.assign_to_device(CarrierId(1), HOST, 9).is_none());
        assert_eq!(add(&mut carriers, "192.0.2.1"), None, "it has not said yet who it is");
        for _ in 0..2 {
            assert_eq!(add(&mut carriers, "192.0.2.66"), None);
        }
        for _ in 0..9 {
            assert_eq!(add(&mut carriers, "192.0.2.66").as_deref(), Some("192.0.2.66"));
        }
        assert_eq!(add(&mut carriers, "192.0.2.2").as_deref(), Some("192.0.2.66"));
        assert_eq!(add(&mut carriers, "192.0.2.3").as_deref(), Some("192.0.2.1"), "all have one: the oldest");
    }

    /// What comes before its turn waits in memory, which no device's account has.
    #[test]
    fn few_carriers_of_a_device_have_wide_windows() {
        let mut carriers = Carriers::default();
        let (carrier, _) = memory_pair(Binding([0; 32]));
        let inner: Arc<dyn Carrier> = Arc::new(carrier);
        let mut all = Vec::new();
        let mut add = |carriers: &mut Carriers| {
            let one = Arc::new(From(inner.clone(), "192.0.2.1".parse().unwrap(), AtomicBool::new(false), Kind::Memory));
            let id = CarrierId(all.len() as u64);
            carriers.add(id, &(one.clone() as Arc<dyn Carrier>), most(9_999, 9_999, 9_999));
            carriers.assign_to_device(id, HOST, 1_024);
            carriers.assign_to_device(id, HOST, 1_024);
            all.push(one.clone());
            one.2.load(Ordering::Relaxed)
        };
        let wide = (0..1_024).filter(|_| add(&mut carriers)).count();
        assert_eq!(wide, WIDE);
        (0..1_024).for_each(|id| drop(carriers.remove(CarrierId(id))));
        assert!(add(&mut carriers), "all of them are gone");
    }

    #[test]
    fn a_device_has_so_many_and_leaves_others_theirs() {
        let mut carriers = Carriers::default();
        let all: Vec<_> = (0..4).map(|at| from(&format!("192.0.2.{at}"))).collect();
        for (at, carrier) in (0..).zip(&all) {
            assert!(carriers.add(CarrierId(at), carrier, most(9, 9, 9)).is_none());
        }
        for at in [0, 1, 1, 0] {
            assert!(carriers.assign_to_device(CarrierId(at), HOST, 2).is_none());
        }
        let closed = carriers.assign_to_device(CarrierId(2), HOST, 2).unwrap();
        assert!(Arc::ptr_eq(&closed, &all[2]));
        assert!(carriers.assign_to_device(CarrierId(3), DeviceId([2; 20]), 2).is_none());
        carriers.remove(CarrierId(0));
        assert!(carriers.add(CarrierId(4), &all[0], most(9, 9, 9)).is_none());
        assert!(carriers.assign_to_device(CarrierId(4), HOST, 2).is_none(), "one of them is gone");
    }
}
