//! Reports as they cross the lifeline.

use crate::launch::Report;

#[test]
fn reports_come_back_as_they_were_sent() {
    let reports = [
        Report::Ended { status: 0, background: false },
        Report::Ended { status: 3 << 8, background: true },
        Report::Ended { status: 9, background: false },
        Report::TooMany,
        Report::NotConfined { errno: 1 },
        Report::NotStarted { errno: 2 },
        Report::NotStarted { errno: i32::MAX },
    ];
    for report in reports {
        assert_eq!(Report::decode(report.encode()), Some(report));
    }
    assert_eq!(Report::decode([0; Report::SIZE]), None);
}
