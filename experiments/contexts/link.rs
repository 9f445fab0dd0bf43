//! The links between client, middleboxes and server in the lab.

use std::time::Duration;

use levada_harness::Params;
use levada_lab::{LabError, Link, Loss, Options};

use crate::testbed::Testbed;

/// Megabits per second in bits per second.
const MBIT: u64 = 1_000_000;

/// The links of a path, all alike unless a profile says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Links {
    /// One-way delay in ms, rate in Mbit/s, and the share of lost packets.
    Alike { delay_ms: u64, rate_mbit: u64, loss: f64 },
    /// An emulated network with one middlebox.
    Profile(Profile),
}

/// Networks with one middlebox.
///
/// The delays between cities are their great-circle distance at 200 km per ms, the speed of light
/// in fibre, times 1.5 for detours of routes: Barcelona to Dublin 1,470 km, Dublin to San Jose
/// 8,190 km. 3G is the profile "3G" of WebPageTest: 1.6 Mbit/s down, 0.768 up, 300 ms round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The client has 45 Mbit/s in Barcelona, the middlebox is in Ireland, the server in
    /// California.
    Fibre,
    /// As [`Self::Fibre`], but the client is on a mobile network.
    Mobile,
    /// All in one local network.
    Lan,
}

/// Barcelona to Dublin, one way.
const TO_IRELAND: Duration = Duration::from_millis(11);
/// Dublin to San Jose, one way.
const TO_CALIFORNIA: Duration = Duration::from_millis(61);

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Fibre, Self::Mobile, Self::Lan];

    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fibre => "fibre",
            Self::Mobile => "3G",
            Self::Lan => "LAN",
        }
    }

    fn links(self) -> [Link; 2] {
        let far = Link::new().delay(TO_CALIFORNIA).rate(100 * MBIT);
        match self {
            Self::Fibre => [Link::new().delay(TO_IRELAND).rate(45 * MBIT), far],
            Self::Mobile => {
                let delay = Duration::from_millis(150) + TO_IRELAND;
                let down = Link::new().delay(delay).rate(1_600_000);
                [Link::new().delay(delay).rate(768_000).reverse(down), far]
            }
            Self::Lan => {
                let link = Link::new().delay(Duration::from_micros(100)).rate(1000 * MBIT);
                [link.clone(), link]
            }
        }
    }
}

impl Links {
    /// A line of `middleboxes + 1` links.
    pub fn testbed(self, middleboxes: usize) -> Result<Testbed, LabError> {
        let links = match self {
            Self::Profile(profile) => profile.links().to_vec(),
            Self::Alike { delay_ms, rate_mbit, loss } => {
                let mut link =
                    Link::new().delay(Duration::from_millis(delay_ms)).rate(rate_mbit * MBIT);
                if loss > 0.0 {
                    link = link.loss(Loss::Bernoulli(loss));
                }
                vec![link; middleboxes + 1]
            }
        };
        Testbed::line(Options::default(), &links, false)
    }

    /// Adds the conditions to those of a row.
    pub fn describe(self, params: &mut Params) {
        match self {
            Self::Profile(profile) => {
                params.insert("network".to_owned(), profile.name().into());
            }
            Self::Alike { delay_ms, rate_mbit, loss } => {
                params.insert("delay_ms".to_owned(), delay_ms.into());
                params.insert("rate_mbit".to_owned(), rate_mbit.into());
                if loss > 0.0 {
                    params.insert("loss".to_owned(), loss.into());
                }
            }
        }
    }
}
