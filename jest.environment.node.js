// Node's environment, one for all spec files of a worker, for the same reason as the page of jest.environment.js.
const { TestEnvironment } = require('jest-environment-node');
const { Kept, shared } = require('./jest.kept.js');

class World extends TestEnvironment {
  constructor(config, context) {
    super(config, context);
    this.kept = new Kept(this.global, [this.global.process, this.global.performance]);
  }

  begin() {}

  restore() {
    this.kept.restore();
  }
}

module.exports = shared((config, context) => new World(config, context));
