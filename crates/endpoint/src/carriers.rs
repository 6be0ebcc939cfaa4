//! The carriers of a server: [`Carriers`].

use crate::flow::CarrierId;
use hoop_carrier::Carrier;
use hoop_units::DeviceId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Whose a carrier is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// A device's: a flow was attached over it, which takes a key.
    Device,
    /// Anybody's, at this address if it has one.
    Stranger(Option<DeviceId>),
}

/// The carriers that there are, within bounds. Strangers have what devices leave: when all places are taken, the one that has been a stranger's longest makes way.
#[derive(Default)]
pub(crate) struct Carriers {
    all: BTreeMap<CarrierId, (Arc<dyn Carrier>, Whose)>,
    /// How many strangers each address has.
    strangers: HashMap<DeviceId, usize>,
}

impl Carriers {
    /// Takes one in, with more than the highest number so far; `most` of them, and `of_address` of the strangers of one address. Gives what is to be closed: the one that makes
    /// way, or itself.
    pub(crate) fn add(
        &mut self,
        id: CarrierId,
        carrier: &Arc<dyn Carrier>,
        most: usize,
        of_address: usize,
    ) -> Option<Arc<dyn Carrier>> {
        let address = carrier.peer().map(DeviceId::from_ip);
        if address.is_some_and(|address| self.strangers.get(&address).is_some_and(|count| *count >= of_address)) {
            return Some(carrier.clone());
        }
        let mut out = None;
        if self.all.len() >= most {
            let oldest = self.all.iter().find(|(_, (_, whose))| *whose != Whose::Device).map(|(id, _)| *id);
            match oldest.and_then(|id| self.remove(id)) {
                Some(oldest) => out = Some(oldest),
                None => return Some(carrier.clone()),
            }
        }
        if let Some(address) = address {
            *self.strangers.entry(address).or_default() += 1;
        }
        self.all.insert(id, (carrier.clone(), Whose::Stranger(address)));
        out
    }

    /// A flow was attached over it.
    pub(crate) fn is_a_devices(&mut self, id: CarrierId) {
        if let Some((_, whose)) = self.all.get_mut(&id) {
            let was = std::mem::replace(whose, Whose::Device);
            self.forget(was);
        }
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, id: CarrierId) -> Option<Arc<dyn Carrier>> {
        let (carrier, whose) = self.all.remove(&id)?;
        self.forget(whose);
        Some(carrier)
    }

    fn forget(&mut self, whose: Whose) {
        let Whose::Stranger(Some(address)) = whose else { return };
        if let Some(count) = self.strangers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.strangers.remove(&address);
            }
        }
    }

    /// Closes them all.
    pub(crate) fn close(&self) {
        self.all.values().for_each(|(carrier, _)| carrier.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hoop_carrier::{Kind, Lane, Pending, memory_pair};
    use hoop_flow::Binding;
    use std::io;
    use std::net::IpAddr;

    /// A carrier from an address.
    #[derive(Debug)]
    struct From(Arc<dyn Carrier>, IpAddr);

    impl Carrier for From {
        fn kind(&self) -> Kind {
            self.0.kind()
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
    }

    fn from(address: &str) -> Arc<dyn Carrier> {
        let (carrier, _) = memory_pair(Binding([0; 32]));
        Arc::new(From(Arc::new(carrier), address.parse().unwrap()))
    }

    #[test]
    fn strangers_make_way_the_oldest_first_and_devices_never() {
        let mut carriers = Carriers::default();
        let all: Vec<_> = (0..5).map(|at| from(&format!("192.0.2.{at}"))).collect();
        let add = |carriers: &mut Carriers, at: u64| carriers.add(CarrierId(at), &all[at as usize], 3, 9);
        for at in 0..3 {
            assert!(add(&mut carriers, at).is_none());
        }
        carriers.is_a_devices(CarrierId(0));
        assert!(Arc::ptr_eq(&add(&mut carriers, 3).unwrap(), &all[1]), "the oldest that is no device's");
        carriers.is_a_devices(CarrierId(2));
        carriers.is_a_devices(CarrierId(3));
        assert!(Arc::ptr_eq(&add(&mut carriers, 4).unwrap(), &all[4]), "all are devices'");
    }

    #[test]
    fn an_address_has_so_many_strangers_and_any_number_of_devices() {
        let mut carriers = Carriers::default();
        let mut id = 0;
        let mut add = |carriers: &mut Carriers, address: &str| {
            id += 1;
            (CarrierId(id), carriers.add(CarrierId(id), &from(address), 99, 2).is_none())
        };
        let (first, second) = (add(&mut carriers, "192.0.2.1"), add(&mut carriers, "192.0.2.1"));
        assert!(first.1 && second.1 && !add(&mut carriers, "192.0.2.1").1 && add(&mut carriers, "192.0.2.2").1);
        carriers.is_a_devices(first.0);
        assert!(add(&mut carriers, "192.0.2.1").1, "one of them is a device's");
        assert!(!add(&mut carriers, "192.0.2.1").1);
        carriers.remove(second.0);
        assert!(add(&mut carriers, "192.0.2.1").1, "one of them is gone");
    }
}
