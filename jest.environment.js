// jsdom without the web APIs that Node already has.
const { TestEnvironment } = require('jest-environment-jsdom');

module.exports = class extends TestEnvironment {
  async setup() {
    await super.setup();
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
    this.global.requestIdleCallback ??= callback => setTimeout(callback, 0);
    this.global.cancelIdleCallback ??= clearTimeout;
    // vega probes a 2d context at import; jsdom only logs an error there.
    this.global.HTMLCanvasElement.prototype.getContext = () => null;
  }
};
