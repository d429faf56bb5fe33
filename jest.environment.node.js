// Node's environment, one for all spec files of a worker, for the same reason as the page of jest.environment.js.
const { TestEnvironment } = require('jest-environment-node');
const { Kept } = require('./jest.kept.js');

let world;

module.exports = class {
  constructor(config, context) {
    if (!world) {
      world = new TestEnvironment(config, context);
      world.kept = new Kept(world.global, [world.global.process, world.global.performance]);
    }
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
    world.kept.restore();
  }

  exportConditions() {
    return world.exportConditions();
  }

  getVmContext() {
    return world.getVmContext();
  }
};
