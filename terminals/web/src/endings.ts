// How a terminal ended, in words, and what its user can do next.

export interface Ending {
  title: string;
  why: string;
  next: string;
  /** Whether a new terminal of the same sandbox can be had. */
  again: boolean;
}

export interface Circumstances {
  code: number;
  reason: string;
  opened: boolean;
  /** The name of the tmux session, or empty. */
  session: string;
  /** Whether a host page can mint a new ticket. */
  framed: boolean;
}

/** The server's close codes are in docs/terminals.md. */
export function ending({ code, reason, opened, session, framed }: Circumstances): Ending {
  const anew = framed ? "Open a new one to go on." : "To go on, open a new terminal where you opened this one: a link works once.";
  const back = framed ? "Reconnect to go on." : "To go on, open the terminal again where you opened this one: a link works once.";
  const kept = session ? ` The session “${session}” keeps running.` : "";
  const another = "Lease a new sandbox to go on. What lies in a kept volume is still there.";
  switch (code) {
    case 1000:
      return { title: "The shell has ended", why: reason || "ended", next: anew, again: true };
    case 1001:
      return { title: "The server is going away", why: reason || "it stops or restarts", next: `${back}${kept}`, again: true };
    case 1011:
      return { title: "The terminal has failed", why: reason || "the server met an error", next: `${back}${kept}`, again: true };
    case 4001:
      return { title: "The lease has ended", why: reason || "the lease has ended", next: another, again: false };
    case 4002:
      return { title: "Staff ended this sandbox", why: reason || "ended by staff", next: "Ask them before you lease another.", again: false };
    case 4003:
      return { title: "The sandbox has died", why: reason || "the sandbox died", next: another, again: false };
    case 4008:
      return { title: "Closed because this page stood still", why: reason || "too slow", next: `${back}${kept}`, again: true };
    default:
      break;
  }
  if (!opened) {
    const why = "its link was used already, or is older than 30 seconds, or the sandbox is not running, or the server is out of reach";
    return { title: "The terminal could not be opened", why, next: framed ? "Try again." : back, again: true };
  }
  const why = reason || (code === 1006 ? "the network or the server failed" : `closed with code ${code}`);
  return { title: "The connection was lost", why, next: `${back}${kept}`, again: true };
}
