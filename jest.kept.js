const { KEPT } = require('./scripts/jest-packages.cjs');

/** Makes the properties again that were there at first: of a global object, of others, and of all that it has classes for. What was evaluated of the packages stays. */
exports.Kept = class {
  constructor(global, others) {
    const classes = Object.values(Object.getOwnPropertyDescriptors(global)).flatMap(({ value }) =>
      typeof value === 'function' && value.prototype ? [value, value.prototype] : []
    );
    this.kept = [global, ...others, ...new Set(classes)].map(object => [
      object,
      Object.getOwnPropertyDescriptors(object)
    ]);
  }

  restore() {
    for (const [object, before] of this.kept) {
      for (const name of Reflect.ownKeys(object)) {
        const now = Object.getOwnPropertyDescriptor(object, name);
        if (now?.configurable && !(name in before) && name !== KEPT) {
          delete object[name];
        }
      }
      for (const name of Reflect.ownKeys(before)) {
        const old = before[name];
        const now = Object.getOwnPropertyDescriptor(object, name);
        if (!now || (now.configurable && (now.value !== old.value || now.get !== old.get))) {
          Object.defineProperty(object, name, old);
        }
      }
    }
  }
};

/**
 * Makes the environment class that Jest asks for: one world for all spec files of a worker, made as it was at each file's end.
 * @param make - Makes the world from Jest's configuration and the first file's context: a `TestEnvironment` with `begin(context)` and `restore()`.
 */
exports.shared = make => {
  let world;
  return class {
    constructor(config, context) {
      world ??= make(config, context);
      world.begin(context);
      this.global = world.global;
      this.fakeTimers = world.fakeTimers;
      this.fakeTimersModern = world.fakeTimersModern;
      this.moduleMocker = world.moduleMocker;
    }

    async setup() {}

    async teardown() {
      this.fakeTimers.useRealTimers();
      this.fakeTimersModern.useRealTimers();
      this.moduleMocker.restoreAllMocks();
      world.restore();
    }

    exportConditions() {
      return world.exportConditions();
    }

    getVmContext() {
      return world.getVmContext();
    }
  };
};
