// The page that this one is framed in, if any: it mints tickets and wants to know whether the terminal works.

const SOURCE = "hanzo-term";

export const framed = window.parent !== window;

// The host's origin is not known here, and nothing that is told is a secret.
const tell = (message: object): void => {
  if (framed) window.parent.postMessage({ source: SOURCE, ...message }, "*");
};

export const ready = (): void => tell({ ready: true });
export const notReady = (why: string): void => tell({ ready: false, why });
/** Asks for a new ticket and a new frame. */
export const retry = (): void => tell({ retry: true });
