//! The tests of the session stores, in one binary because linking costs more than running.

#[cfg(test)]
mod contract;
#[cfg(test)]
mod intruders;
#[cfg(test)]
mod logs;
#[cfg(unix)]
#[cfg(test)]
mod processes;
#[cfg(test)]
mod sqlite;
#[cfg(test)]
mod support;
