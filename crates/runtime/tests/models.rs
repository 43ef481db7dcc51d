//! Model providers against vendors that are stricter and odder than the real ones.

#[cfg(test)]
#[path = "models/prv.rs"]
mod prv;
#[cfg(test)]
#[path = "models/script_docs.rs"]
mod script_docs;
#[cfg(test)]
#[path = "models/support.rs"]
mod support;
#[cfg(test)]
#[path = "models/thinking.rs"]
mod thinking;
#[cfg(test)]
#[path = "models/turns.rs"]
mod turns;
#[cfg(test)]
#[path = "models/vendors.rs"]
mod vendors;
