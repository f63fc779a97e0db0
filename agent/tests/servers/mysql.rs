//! A MySQL client that counts its statements. On a socket of its own: the command line's client waits for the greeting for good, or
//! for minutes, where the end of its handshake was lost, which the server repeats ever more seldom. This one then connects anew.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const OK: u8 = 0x00;
const EOF: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// `PROTOCOL_41`, `SECURE_CONNECTION` and `PLUGIN_AUTH`: results end with EOF packets.
const CAPABILITIES: u32 = 1 << 9 | 1 << 15 | 1 << 19;

/// A connection that is logged in.
pub(crate) struct Client {
    stream: TcpStream,
}

impl Client {
    /// Logs in as root, who needs no password.
    pub(crate) fn connect(address: &str) -> Result<Self, u16> {
        Self::connect_as(address, "root")
    }

    /// Logs in as somebody who needs no password, if the server lets them in; else its error's number.
    pub(crate) fn connect_as(address: &str, user: &str) -> Result<Self, u16> {
        let (mut client, sequence, greeting) = loop {
            let mut client = Self { stream: TcpStream::connect(address).unwrap() };
            client.stream.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
            if let Ok((sequence, greeting)) = client.packet() {
                break (client, sequence, greeting);
            }
        };
        client.stream.set_nodelay(true).unwrap();
        // Only so that a broken test ends: under loss TCP may wait two minutes before it sends once more.
        client.stream.set_read_timeout(Some(Duration::from_secs(400))).unwrap();
        refused(&greeting)?;
        let mut login = CAPABILITIES.to_le_bytes().to_vec();
        login.extend_from_slice(&(1u32 << 24).to_le_bytes());
        login.push(45);
        login.extend_from_slice(&[0; 23]);
        login.extend_from_slice(format!("{user}\0\0mysql_native_password\0").as_bytes());
        client.send(sequence + 1, &login);
        refused(&client.packet().unwrap().1)?;
        Ok(client)
    }

    /// Makes a statement; the error's number if it is one.
    pub(crate) fn query(&mut self, statement: &str) -> Result<(), u16> {
        self.send(0, &[&[COM_QUERY], statement.as_bytes()].concat());
        let (_, first) = self.packet().unwrap();
        refused(&first)?;
        if first[0] != OK {
            // Columns, then rows.
            for _ in 0..2 {
                while !matches!(self.packet().unwrap().1.as_slice(), [EOF, rest @ ..] if rest.len() < 8) {}
            }
        }
        Ok(())
    }

    /// Says farewell, which is not answered.
    pub(crate) fn quit(mut self) {
        self.send(0, &[COM_QUIT]);
    }

    fn send(&mut self, sequence: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        self.stream.write_all(&[&length[..3], &[sequence], payload].concat()).unwrap();
    }

    fn packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, sequence] = header;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((sequence, payload))
    }
}

fn refused(answer: &[u8]) -> Result<(), u16> {
    match answer {
        [ERROR, low, high, ..] => Err(u16::from_le_bytes([*low, *high])),
        _ => Ok(()),
    }
}
