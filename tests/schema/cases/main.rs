//! One test binary for each version of the official types; the modules are the questions that are asked.

mod lenient;
mod made;
mod recorded;
mod sent;
mod taken;
