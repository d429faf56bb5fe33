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
