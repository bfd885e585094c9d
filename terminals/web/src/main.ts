// The page: measures the terminal, connects, and ties the parts together.

import { copy } from "./clipboard";
import { element } from "./dom";
import { ending } from "./endings";
import * as host from "./host";
import { takeInput } from "./input";
import * as notices from "./notices";
import * as preferences from "./preferences";
import { Sizer, type Size } from "./sizer";
import { address, Socket } from "./socket";
import { allowXtermStyles } from "./styles";
import { makeScreen, type Screen } from "./terminal";
import { followAppearance } from "./theme";
import { takeControls } from "./toolbar";
import { takeFiles, Uploads } from "./upload";

const LAYOUT_MOST = 2000; // ms that a page without a size, as in a frame that is not shown yet, waits for one
const NOTICE_LIFE = 6000; // ms
const TITLE_MOST = 80; // characters

const query = new URLSearchParams(location.search);
const session = query.get("arg")?.trim() ?? "";
const chosen = preferences.load();

/** The screen's size, as soon as it has one. */
async function firstSize(container: HTMLElement, screen: Screen): Promise<Size | null> {
  const size = screen.measure();
  if (size) return size;
  return new Promise((resolve) => {
    const observer = new ResizeObserver(() => screen.measure() && over());
    const timer = setTimeout(() => over(), LAYOUT_MOST);
    const over = (): void => {
      observer.disconnect();
      clearTimeout(timer);
      resolve(screen.measure());
    };
    observer.observe(container);
  });
}

/** A ticket that is spent opens nothing any more: it need not stand in the address bar and in the history. */
function forgetTicket(): void {
  const kept = new URLSearchParams(location.search);
  kept.delete("ticket");
  history.replaceState(null, "", `${location.pathname}${kept.size ? `?${kept}` : ""}`);
}

async function main(): Promise<void> {
  allowXtermStyles();
  const container = element("terminal", HTMLElement);
  let socket: Socket | null = null;
  let uploadPath: string | null | undefined = null; // see Uploads
  let sizer: Sizer | null = null;

  const offer = async (text: string): Promise<void> => {
    if (!(await copy(text))) notices.offerCopy(text.length, () => void copy(text).then(() => screen.terminal.focus()));
  };
  const screen = makeScreen(container, {
    fontSize: chosen.fontSize,
    screenReader: chosen.screenReader,
    copies: (text) => void offer(text),
    hint: notices.hint,
    titled: (title) => {
      document.title = title ? `${title.slice(0, TITLE_MOST)} · Terminal` : "Terminal";
    },
  });
  const { terminal } = screen;

  const appearance = followAppearance(chosen.appearance, (theme) => {
    terminal.options.theme = theme;
  });
  const controls = takeControls(chosen, {
    appearance: (value) => appearance.choose(value),
    fontSize: (value) => {
      terminal.options.fontSize = value;
      sizer?.changed();
    },
    screenReader: (value) => {
      terminal.options.screenReaderMode = value;
    },
    back: () => terminal.focus(),
  });
  takeInput(terminal, container, element("keys", HTMLElement), {
    queue: () => (socket?.open ? socket.input : null),
    copy: (text) => void offer(text),
    leave: () => controls.focus(),
    refused() {
      notices.hint("This browser does not let the page read the clipboard.");
      setTimeout(() => notices.hint(null), NOTICE_LIFE);
    },
  });
  const uploads = new Uploads(() => uploadPath, () => terminal.focus());
  takeFiles(uploads);

  element("session", HTMLElement).textContent = session;
  notices.showState("connecting", "Connecting…");
  followViewport();
  const size = await firstSize(container, screen);
  if (size) terminal.resize(size.cols, size.rows);
  sizer = new Sizer({ cols: terminal.cols, rows: terminal.rows }, screen.measure, (changed) => {
    terminal.resize(changed.cols, changed.rows);
    socket?.resize(changed);
  });
  new ResizeObserver(() => sizer?.changed()).observe(container);
  document.addEventListener("visibilitychange", () => sizer?.changed());

  socket = new Socket(address(location, size), {
    opened() {
      uploadPath = undefined;
      forgetTicket();
      notices.showState("open", "Connected");
      host.ready();
      terminal.focus();
    },
    uploadsTo(path) {
      uploadPath = path;
      uploads.go();
    },
    output: (text, shown) => terminal.write(text, shown),
    closed(code, reason, opened) {
      uploadPath = null;
      uploads.go();
      terminal.options.disableStdin = true;
      terminal.options.cursorBlink = false;
      const told = ending({ code, reason, opened, session, framed: host.framed });
      host.notReady(told.why);
      notices.showEnding(told, host.framed && told.again ? { label: code === 1000 ? "New terminal" : "Reconnect", act: host.retry } : null);
      sizer?.changed();
    },
  });

  // A shell's own keys, such as Ctrl-W, close tabs. A host page asks itself.
  window.addEventListener("beforeunload", (event) => {
    if (!host.framed && socket?.open) event.preventDefault();
  });
}

/** Keeps the page above a phone's keyboard, which on some lies over the page instead of making it smaller. */
function followViewport(): void {
  const viewport = window.visualViewport;
  if (!viewport) return;
  const follow = (): void => {
    if (viewport.scale !== 1) return; // zoomed in, which is the reader's choice
    document.documentElement.style.setProperty("--height", `${viewport.height}px`);
    window.scrollTo(0, 0);
  };
  viewport.addEventListener("resize", follow);
  follow();
}

void main();
