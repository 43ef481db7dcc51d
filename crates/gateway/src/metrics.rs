//! What is counted, and its text for Prometheus. A dozen counters do not need a library.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn less_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything the gateway counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) open: Count,
    pub(crate) opened: Count,
    pub(crate) messages_in: Count,
    pub(crate) messages_out: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
    pub(crate) denied: Count,
    pub(crate) throttled: Count,
    pub(crate) foreign: Count,
    pub(crate) paired: Count,
    pub(crate) stalled: Count,
    pub(crate) dead: Count,
    pub(crate) too_large: Count,
    pub(crate) full: Count,
}

impl Metrics {
    pub(crate) fn text(&self) -> String {
        let rows = [
            ("connections", "gauge", "Connections that are open", &self.open),
            ("connections_total", "counter", "Connections that were opened", &self.opened),
            ("messages_received_total", "counter", "Messages of clients", &self.messages_in),
            ("messages_sent_total", "counter", "Messages to clients", &self.messages_out),
            ("received_bytes_total", "counter", "Bytes of the messages of clients", &self.bytes_in),
            ("sent_bytes_total", "counter", "Bytes of the messages to clients", &self.bytes_out),
            ("auth_failures_total", "counter", "Wrong or missing tokens and wrong codes", &self.denied),
            ("auth_throttled_total", "counter", "Attempts that were not looked at", &self.throttled),
            ("foreign_refused_total", "counter", "Refused for their Origin or Host", &self.foreign),
            ("pairings_total", "counter", "Codes that were exchanged for tokens", &self.paired),
            ("stalled_total", "counter", "Clients detached because they did not read", &self.stalled),
            ("dead_peers_total", "counter", "Peers that fell silent", &self.dead),
            ("oversize_total", "counter", "Messages over the limit", &self.too_large),
            ("connections_refused_total", "counter", "Refused because the limit was reached", &self.full),
        ];
        let mut text = String::new();
        for (name, kind, help, count) in rows {
            let name = format!("zeroclaw_gateway_{name}");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {}", count.value());
        }
        text
    }
}
