//! Names and the addresses inside the cage that stand for them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use super::rules::Name;

/// Names of one run that get an address. 30.18.0.0/15 has room for twice as many; each takes up to 600 bytes of memory.
const MOST: u32 = 65_536;
/// The first address of the first name. Servers that guard themselves against names that lead into private networks refuse
/// what no registry calls global, as 30.18.0.0/15 and unique local addresses are. So names get addresses that look public:
/// of a block that no service of the internet is reached at, and of one that was never given to anybody. Both mean this
/// inside of a cage alone, where every address is local.
const FIRST_V4: u32 = Ipv4Addr::new(30, 18, 1, 0).to_bits();
/// The /64 of the names.
const FIRST_V6: u128 = Ipv6Addr::new(0x2f53, 0x6d63, 0x7000, 1, 0, 0, 0, 0).to_bits();
/// Addresses at the start of it that no name gets, so that both families count alike.
const SKIPPED: u128 = 1;

/// Every name that was handed out, in order. A name keeps its addresses as long as the run lasts, and none of them ever stands
/// for another name.
#[derive(Debug, Default)]
pub struct Names {
    by_number: Vec<Rc<Name>>,
    numbers: HashMap<Rc<Name>, u32>,
}

/// A name's place in the order in which names came.
pub type Number = u32;

impl Names {
    /// The number of a name, a new one where it has none yet; none where there are no more.
    pub fn number(&mut self, name: &Name) -> Option<Number> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u32::try_from(self.by_number.len()).ok().filter(|next| *next < MOST)?;
        let name = Rc::new(name.clone());
        self.by_number.push(Rc::clone(&name));
        self.numbers.insert(name, number);
        Some(number)
    }

    /// The name that an address stands for, with its number.
    pub fn of(&self, address: IpAddr) -> Option<(Number, Rc<Name>)> {
        let number = match address {
            IpAddr::V4(v4) => v4.to_bits().checked_sub(FIRST_V4)?,
            IpAddr::V6(v6) => u32::try_from(v6.to_bits().checked_sub(FIRST_V6 + SKIPPED)?).ok()?,
        };
        let name = self.by_number.get(usize::try_from(number).ok()?)?;
        Some((number, Rc::clone(name)))
    }
}

/// The IPv4 address of a number.
pub fn v4(number: Number) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_V4 + number)
}

/// The IPv6 address of a number.
pub fn v6(number: Number) -> Ipv6Addr {
    Ipv6Addr::from_bits(FIRST_V6 + SKIPPED + u128::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Name {
        Name::new(&format!("n{number}.test")).unwrap()
    }

    #[test]
    fn an_address_stands_for_one_name_for_good() {
        let mut names = Names::default();
        for number in 0..MOST {
            assert_eq!(names.number(&name(number)), Some(number));
        }
        assert_eq!(names.number(&name(MOST)), None, "no address is left");
        assert_eq!(names.number(&name(7)), Some(7), "those that have one keep it");
        for number in [0, 1, 255, 256, MOST - 1] {
            for address in [IpAddr::V4(v4(number)), IpAddr::V6(v6(number))] {
                assert_eq!(names.of(address), Some((number, Rc::new(name(number)))), "{address}");
            }
        }
        assert_eq!(v4(0), Ipv4Addr::new(30, 18, 1, 0));
        assert!(v4(MOST - 1) < Ipv4Addr::new(30, 19, 255, 255));
        assert_eq!(v6(0), "2f53:6d63:7000:1::1".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn other_addresses_stand_for_none() {
        let mut names = Names::default();
        names.number(&name(0));
        for address in [
            "30.18.0.1",
            "30.18.0.255",
            "30.18.1.1",
            "127.0.0.1",
            "255.255.255.255",
            "2f53:6d63:7000::1",
            "2f53:6d63:7000:1::",
            "2f53:6d63:7000:1::2",
            "2f53:6d63:7000:2::1",
            "::1",
            "ffff::1",
        ] {
            assert_eq!(names.of(address.parse().unwrap()), None, "{address}");
        }
    }
}
