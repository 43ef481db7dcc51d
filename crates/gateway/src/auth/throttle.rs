//! How fast strangers may guess: delays that grow with each wrong token or code, per peer and for all together. Pure.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
};

/// Wrong guesses that cost nothing: a person mistypes, a client retries with a stale token.
const FREE: u32 = 4;
/// The first delay; it doubles with each further wrong guess.
const FIRST_MS: i64 = 500;
/// The longest delay: long enough that guessing is hopeless, short enough that nobody is locked out of an own machine.
const LONGEST_MS: i64 = 60_000;
/// A peer that was quiet so long starts anew.
const FORGET_MS: i64 = 15 * 60_000;
/// Peers that are remembered. Beyond it the one that was quiet longest is forgotten; without it every address of a
/// botnet would take memory.
const MAX_PEERS: usize = 4096;
/// Wrong guesses of everybody together that cost nobody anything.
const GLOBAL_FREE: u32 = 64;
/// The longest delay for peers that have never been let in while everybody together guesses too much.
const GLOBAL_LONGEST_MS: i64 = 8_000;
/// How long everybody together has to be quiet for one wrong guess to be forgiven.
const GLOBAL_FORGIVE_MS: i64 = 1_000;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// Somebody who can open our Unix domain socket.
    Local,
    /// An address; of IPv6 the half that one customer has.
    Address(IpAddr),
}

impl Peer {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::Address(address.into()),
            IpAddr::V6(address) => Self::Address(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()),
        }
    }
}

#[derive(Debug, Default)]
struct Record {
    failures: u32,
    last_ms: i64,
    blocked_until_ms: i64,
    known: bool,
}

/// What is remembered of guesses.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    peers: HashMap<Peer, Record>,
    all: u32,
    all_last_ms: i64,
    all_blocked_until_ms: i64,
}

impl Throttle {
    /// How many milliseconds the peer has to wait before its next guess is looked at; 0 means none.
    pub(crate) fn wait_ms(&self, peer: Peer, now_ms: i64) -> i64 {
        let record = self.peers.get(&peer);
        let own = record.map_or(0, |record| record.blocked_until_ms - now_ms);
        let known = record.is_some_and(|record| record.known);
        let global = if known { 0 } else { self.all_blocked_until_ms - now_ms };
        own.max(global).max(0)
    }

    /// Notes a wrong guess.
    pub(crate) fn failed(&mut self, peer: Peer, now_ms: i64) {
        self.make_room(peer, now_ms);
        let record = self.peers.entry(peer).or_default();
        if now_ms - record.last_ms > FORGET_MS {
            record.failures = 0;
        }
        record.failures = record.failures.saturating_add(1);
        record.last_ms = now_ms;
        record.blocked_until_ms = now_ms + delay(record.failures, FREE, LONGEST_MS);
        let forgiven = u32::try_from((now_ms - self.all_last_ms).max(0) / GLOBAL_FORGIVE_MS).unwrap_or(u32::MAX);
        self.all = self.all.saturating_sub(forgiven).saturating_add(1);
        self.all_last_ms = now_ms;
        self.all_blocked_until_ms = now_ms + delay(self.all, GLOBAL_FREE, GLOBAL_LONGEST_MS);
    }

    /// Notes that the peer was let in.
    pub(crate) fn succeeded(&mut self, peer: Peer, now_ms: i64) {
        self.make_room(peer, now_ms);
        self.peers.insert(peer, Record { last_ms: now_ms, known: true, ..Record::default() });
    }

    fn make_room(&mut self, peer: Peer, now_ms: i64) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer) {
            return;
        }
        self.peers.retain(|_, record| now_ms - record.last_ms <= FORGET_MS);
        while self.peers.len() >= MAX_PEERS {
            // Those who were let in go last: forgetting them would let strangers lock them out.
            let oldest = self.peers.iter().min_by_key(|(_, record)| (record.known, record.last_ms));
            let Some(oldest) = oldest.map(|(peer, _)| *peer) else { return };
            self.peers.remove(&oldest);
        }
    }
}

fn delay(failures: u32, free: u32, longest_ms: i64) -> i64 {
    match failures.checked_sub(free + 1) {
        None => 0,
        Some(doublings) => FIRST_MS.saturating_mul(1_i64 << doublings.min(20)).min(longest_ms),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::{MAX_PEERS, Peer, Throttle};

    fn peer(number: u32) -> Peer {
        Peer::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn delays_grow_and_end() {
        let mut throttle = Throttle::default();
        let mut now = 1_000_000;
        let mut waits = Vec::new();
        for _ in 0..13 {
            throttle.failed(peer(1), now);
            let wait = throttle.wait_ms(peer(1), now);
            waits.push(wait);
            now += wait;
            assert_eq!(throttle.wait_ms(peer(1), now), 0);
        }
        assert_eq!(waits, [0, 0, 0, 0, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        assert_eq!(throttle.wait_ms(peer(2), now), 0, "another peer is not held up");
        throttle.succeeded(peer(1), now);
        throttle.failed(peer(1), now);
        assert_eq!(throttle.wait_ms(peer(1), now), 0, "who was let in starts anew");
        for _ in 0..10 {
            throttle.failed(peer(1), now);
        }
        now += 16 * 60_000;
        throttle.failed(peer(1), now);
        assert_eq!(throttle.wait_ms(peer(1), now), 0, "forgotten");
    }

    #[test]
    fn many_peers_together_are_slowed_but_nobody_who_was_let_in() {
        let mut throttle = Throttle::default();
        throttle.succeeded(peer(0), 0);
        for number in 1..=200 {
            throttle.failed(peer(number), 0);
        }
        assert_eq!(throttle.wait_ms(peer(1000), 0), 8000);
        assert_eq!(throttle.wait_ms(peer(0), 0), 0);
        throttle.failed(peer(1000), 200_000);
        assert_eq!(throttle.wait_ms(peer(1001), 200_000), 0, "forgiven");
    }

    #[test]
    fn a_flood_of_addresses_takes_no_memory() {
        let mut throttle = Throttle::default();
        throttle.succeeded(peer(0), 0);
        for number in 1..20_000 {
            throttle.failed(peer(number), i64::from(number));
        }
        assert_eq!(throttle.peers.len(), MAX_PEERS);
        assert!(throttle.peers.contains_key(&peer(0)));
        assert!(throttle.peers.contains_key(&peer(19_999)));
    }

    #[test]
    fn one_customer_is_one_peer() {
        let address = |low| Peer::of(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, low)));
        assert_eq!(address(1), address(2));
        let mapped = Peer::of(IpAddr::V6(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()));
        assert_eq!(mapped, Peer::of(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
    }
}
