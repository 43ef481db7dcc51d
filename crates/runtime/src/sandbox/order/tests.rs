//! Orders as they cross a socket.

use std::{fs::File, os::unix::net::UnixStream, path::PathBuf};

use crate::sandbox::{
    Access, Limits,
    order::{Confine, Order, decode},
};

fn round(order: &Order) -> std::io::Result<Order> {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    order.send(&ours)?;
    Order::receive(&theirs)
}

#[test]
fn an_order_arrives_as_it_was_given() {
    let limits =
        Limits { cpu_secs: Some(7), memory_bytes: None, file_bytes: Some(0), open_files: Some(9), processes: None };
    let plain = round(&Order { limits, confine: None }).expect("arrives");
    assert_eq!(plain.limits, limits);
    assert!(plain.confine.is_none());

    let confine = Confine {
        network: true,
        local_sockets: false,
        handles: Vec::new(),
        paths: vec![(PathBuf::from("/usr"), Access::Read), (PathBuf::from("/a b\u{fc}"), Access::Write)],
        hidden: vec![PathBuf::from("/home/u/.ssh")],
    };
    let sent = Order { limits: Limits::default(), confine: Some(confine) };
    let got = round(&sent).expect("arrives").confine.expect("confined");
    let sent = sent.confine.expect("confined");
    assert_eq!((got.network, got.local_sockets), (true, false));
    assert_eq!((got.paths, got.hidden), (sent.paths, sent.hidden));
}

#[cfg(target_os = "linux")]
#[test]
fn handles_arrive_as_the_same_directories() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().expect("dir");
    let handle = File::open(dir.path()).expect("opened");
    let id = handle.metadata().expect("metadata").ino();
    let confine = Confine { handles: vec![(handle.into(), Access::Write)], ..Confine::default() };
    let got = round(&Order { confine: Some(confine), ..Order::default() }).expect("arrives");
    let mut handles = got.confine.expect("confined").handles;
    let (handle, access) = handles.pop().expect("one handle");
    assert_eq!((File::from(handle).metadata().expect("metadata").ino(), access), (id, Access::Write));
}

#[test]
fn what_is_too_long_or_cut_is_refused() {
    let paths = vec![(PathBuf::from("/".repeat(1000)), Access::Read); 70];
    let confine = Confine { paths, ..Confine::default() };
    let long = Order { confine: Some(confine), ..Order::default() };
    assert!(round(&long).is_err());

    let confine = Confine { paths: vec![(PathBuf::from("/usr"), Access::Read)], ..Confine::default() };
    let body = Order { confine: Some(confine), ..Order::default() }.encode();
    assert!(decode(&body, Vec::new()).is_some());
    for size in 0..body.len() {
        assert!(decode(&body[..size], Vec::new()).is_none(), "{size}");
    }
    let more = [body.as_slice(), &[0]].concat();
    assert!(decode(&more, Vec::new()).is_none());
    // A handle that nobody announced.
    assert!(decode(&body, vec![File::open("/").expect("root").into()]).is_none());

    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(ours);
    assert!(Order::receive(&theirs).is_err(), "no order is no permission");
}
