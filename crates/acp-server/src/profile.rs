//! What is known of certain clients, as data: which error numbers they understand, how long a line they read, and what
//! they expect besides the protocol. It refuses guesses: every entry is a fact about a released client.

use std::collections::BTreeMap;

use zeroclaw_acp_protocol::ErrorTable;

/// What is different for one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientProfile {
    /// The error numbers it gets; `None` leaves it to the settings of the server.
    pub errors: Option<ErrorTable>,
    /// The longest line that it reads, in bytes without the line feed; `None` means any.
    pub max_line: Option<usize>,
    /// It reads `modeId` in `current_mode_update`, where the protocol says `currentModeId`: it gets both.
    pub mode_id_twice: bool,
}

const MIB: usize = 1024 * 1024;

/// Nothing is different.
const PLAIN: ClientProfile = ClientProfile { errors: None, max_line: None, mode_id_twice: false };

/// The clients that are known, by `clientInfo.name` in lower case, up to its first dot.
const KNOWN: [(&str, ClientProfile); 4] = [
    // Reads `modeId` of a mode that changed.
    ("avante", ClientProfile { mode_id_twice: true, ..PLAIN }),
    // Takes -32001 and -32002 for "the session is gone" and opens a new one, and reads lines of up to 64 MiB.
    ("acpx", ClientProfile { errors: Some(ErrorTable::Spec), max_line: Some(64 * MIB), ..PLAIN }),
    // Reads lines of up to 10 MiB.
    ("toad", ClientProfile { max_line: Some(10 * MIB), ..PLAIN }),
    // Opens its login screen on any -32000.
    ("zed", ClientProfile { errors: Some(ErrorTable::Spec), ..PLAIN }),
];

/// The profile of a client: what the operator says of it goes over what is known.
pub(crate) fn of(name: &str, configured: &BTreeMap<String, ClientProfile>) -> ClientProfile {
    let name = normal(name);
    let known = KNOWN.iter().find(|(known, _)| matches(&name, known)).map_or(PLAIN, |(_, profile)| *profile);
    let Some(own) = configured.iter().find(|(own, _)| normal(own) == name).map(|(_, profile)| *profile) else {
        return known;
    };
    ClientProfile {
        errors: own.errors.or(known.errors),
        max_line: own.max_line.or(known.max_line),
        mode_id_twice: own.mode_id_twice || known.mode_id_twice,
    }
}

/// A name as it can stand in the configuration file: in lower case, with `-` for what a name there cannot have.
fn normal(name: &str) -> String {
    let plain =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') { c.to_ascii_lowercase() } else { '-' };
    // Longer names differ in nothing that matters here.
    name.chars().take(64).map(plain).collect()
}

/// Whether a name is this one, alone or before a dot: `avante` is `avante.nvim` too, and "Zed Attack" is no Zed.
fn matches(name: &str, known: &str) -> bool {
    name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zeroclaw_acp_protocol::ErrorTable;

    use super::{ClientProfile, MIB, PLAIN, of};

    #[test]
    fn each_known_client_has_what_is_known_of_it() {
        let spec = Some(ErrorTable::Spec);
        let cases = [
            ("zed", ClientProfile { errors: spec, ..PLAIN }),
            ("Zed", ClientProfile { errors: spec, ..PLAIN }),
            ("acpx", ClientProfile { errors: spec, max_line: Some(64 * MIB), ..PLAIN }),
            ("toad", ClientProfile { max_line: Some(10 * MIB), ..PLAIN }),
            ("avante.nvim", ClientProfile { mode_id_twice: true, ..PLAIN }),
            ("avante", ClientProfile { mode_id_twice: true, ..PLAIN }),
            ("zedd", PLAIN),
            ("my zed", PLAIN),
            ("Zed Attack", PLAIN),
            ("toady", PLAIN),
            ("CodeCompanion.nvim", PLAIN),
            ("", PLAIN),
        ];
        for (name, profile) in cases {
            assert_eq!(of(name, &BTreeMap::new()), profile, "{name}");
        }
    }

    #[test]
    fn the_operator_says_more_than_is_known_and_overrules_it() {
        let own = |profile| BTreeMap::from([("My-IDE".to_owned(), profile), ("zed".to_owned(), profile)]);
        let profile = ClientProfile { max_line: Some(65536), errors: Some(ErrorTable::Zeroclaw), ..PLAIN };
        assert_eq!(of("my ide", &own(profile)), profile);
        assert_eq!(of("zed", &own(profile)), profile);
        let line = ClientProfile { max_line: Some(65536), ..PLAIN };
        assert_eq!(of("zed", &own(line)), ClientProfile { errors: Some(ErrorTable::Spec), ..line });
        assert_eq!(of("my ide 2", &own(profile)), PLAIN);
    }
}
