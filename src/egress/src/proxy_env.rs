//! The environment variables that point programs inside to the proxy.

use std::ffi::OsString;

use avfs_request::{AllowList, Environment, HostRule, NetMode};

/// The port of the proxy inside. Above the kernel's ephemeral ports, so that the kernel never assigns it.
pub const PROXY_PORT: u16 = 61_080;
/// Hosts inside the sandbox do not need the proxy, unless the list has them: then those of the host are meant.
const DIRECT: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A command's environment. With an allow list, the proxy variables are added unless the command sets them itself.
#[must_use]
pub fn with_proxy(environment: &Environment, net: &NetMode) -> Vec<(OsString, OsString)> {
    let mut pairs = environment.pairs();
    match net {
        NetMode::None | NetMode::Host => {}
        NetMode::Allow(list) => {
            let missing =
                variables(&direct(list)).into_iter().filter(|(name, _)| environment.get(name).is_none());
            pairs.extend(missing.map(|(name, value)| (name.into(), value.into())));
        }
    }
    pairs
}

fn direct(list: &AllowList) -> String {
    let lists = |host: &str| {
        list.rules().iter().any(|rule| match &rule.host {
            HostRule::Name(name) => name == host,
            HostRule::Address { address, .. } => host.parse() == Ok(*address),
            HostRule::Beneath(_) => false,
        })
    };
    DIRECT.into_iter().filter(|host| !lists(host)).collect::<Vec<_>>().join(",")
}

/// Both spellings: some programs read only one, and curl ignores HTTP_PROXY in capitals.
fn variables(direct: &str) -> [(&'static str, String); 8] {
    let http = format!("http://127.0.0.1:{PROXY_PORT}");
    let socks = format!("socks5h://127.0.0.1:{PROXY_PORT}");
    [
        ("HTTP_PROXY", http.clone()),
        ("http_proxy", http.clone()),
        ("HTTPS_PROXY", http.clone()),
        ("https_proxy", http),
        ("ALL_PROXY", socks.clone()),
        ("all_proxy", socks),
        ("NO_PROXY", direct.to_owned()),
        ("no_proxy", direct.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use avfs_request::EnvChoice;

    use super::*;

    #[test]
    fn an_allow_list_adds_variables_without_overriding_the_users() {
        let own = [EnvChoice::Set("NO_PROXY".into(), "a.org".into())];
        let environment = Environment::choose([], &own);
        let value = |net: &str, name: &str| {
            let pairs = with_proxy(&environment, &net.parse().unwrap());
            let found: Vec<_> =
                pairs.into_iter().filter(|(own, _)| own == name).map(|(_, value)| value).collect();
            assert!(found.len() < 2, "{name} twice");
            found.into_iter().next().map(|value| value.into_string().unwrap())
        };
        assert_eq!(value("allow=a.org", "https_proxy").as_deref(), Some("http://127.0.0.1:61080"));
        assert_eq!(value("allow=a.org", "ALL_PROXY").as_deref(), Some("socks5h://127.0.0.1:61080"));
        assert_eq!(value("allow=a.org", "NO_PROXY").as_deref(), Some("a.org"));
        assert_eq!(value("allow=a.org", "no_proxy").as_deref(), Some("localhost,127.0.0.1,::1"));
        assert_eq!(value("allow=127.0.0.1:8080", "no_proxy").as_deref(), Some("localhost,::1"));
        assert_eq!(value("allow=localhost,127.0.0.1,::1", "no_proxy").as_deref(), Some(""));
        assert_eq!(value("none", "HTTP_PROXY"), None);
        assert_eq!(value("host", "HTTP_PROXY"), None);
    }
}
