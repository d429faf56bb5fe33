// jsdom without the web APIs that Node already has, one page for all spec files of a worker: a page of its own would make each file run React, Lumino and
// Vega anew in code that the engine has not compiled yet, which takes longer than most of what it tests. What src/ exports is still loaded anew for each
// file. Between two files the page is made as it was.
const { TestEnvironment } = require('jest-environment-jsdom');
const { Kept, shared } = require('./jest.kept.js');

const TARGETS = ['window', 'document'];

class Page extends TestEnvironment {
  constructor(config, context) {
    const page = { file: context };
    // What a page logs belongs to the file that runs.
    const log = new Proxy({}, { get: (_, name) => page.file.console[name].bind(page.file.console) });
    super(config, { ...context, console: log });
    this.file = page;
    this.addWebApis();
    this.track();
    const { document, navigator, performance, process } = this.global;
    this.kept = new Kept(this.global, [document, navigator, performance, process]);
  }

  begin(context) {
    this.file.file = context;
  }

  addWebApis() {
    Object.assign(this.global, {
      fetch,
      Headers,
      Request,
      Response,
      structuredClone,
      TextDecoder,
      TextEncoder,
      // One realm for binary data: Arrow readers check with instanceof.
      ArrayBuffer,
      Uint8Array,
      Float32Array,
      Float64Array,
      Int32Array,
      BigInt64Array,
      DragEvent: this.global.DragEvent ?? class DragEvent extends this.global.Event {}
    });
    // JupyterLab's components ask at import whether colours are forced, and its toolbars listen, some in the old way.
    this.global.matchMedia ??= media => ({
      media,
      matches: false,
      addListener: () => undefined,
      removeListener: () => undefined,
      addEventListener: () => undefined,
      removeEventListener: () => undefined
    });
    this.global.requestIdleCallback ??= callback => this.global.setTimeout(callback, 0);
    this.global.cancelIdleCallback ??= this.global.clearTimeout;
    // vega probes a 2d context at import; jsdom only logs an error there.
    this.global.HTMLCanvasElement.prototype.getContext = () => null;
  }

  /**
   * Notes what a file may leave behind: its timers, and its listeners of the page. Frames and timers without delay run out by themselves. React and Lumino,
   * which are kept, wait for theirs: without them they would never draw again.
   */
  track() {
    const { global } = this;
    this.timers = new Set();
    for (const [start, stop] of [
      ['setTimeout', 'clearTimeout'],
      ['setInterval', 'clearInterval']
    ]) {
      const begin = global[start];
      global[start] = (call, delay, ...rest) => {
        const id = begin(call, delay, ...rest);
        if (delay > 0) {
          this.timers.add([global[stop], id]);
        }
        return id;
      };
    }
    this.listeners = [];
    for (const each of TARGETS) {
      const target = global[each];
      const add = target.addEventListener;
      target.addEventListener = (...listener) => {
        this.listeners.push([target, listener]);
        add.apply(target, listener);
      };
    }
  }

  restore() {
    const { global } = this;
    this.timers.forEach(([stop, id]) => stop(id));
    this.timers.clear();
    this.listeners.forEach(([target, [type, listener, options]]) =>
      target.removeEventListener(type, listener, options)
    );
    this.listeners = [];
    this.kept.restore();
    const { document } = global;
    document.head.replaceChildren();
    document.body.replaceChildren();
    for (const element of [document.documentElement, document.body]) {
      element.getAttributeNames().forEach(name => element.removeAttribute(name));
    }
    document.activeElement?.blur?.();
    global.localStorage.clear();
    global.sessionStorage.clear();
    this.dom.reconfigure({ url: 'http://localhost/' });
  }
}

module.exports = shared((config, context) => new Page(config, context));
