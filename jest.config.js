const { FOLDER, PACKAGES } = require('./scripts/jest-packages.cjs');

// What else ships ES modules goes through swc, as src/ does.
const esm = ['fast-check', 'pure-rand'].join('|');

const bundled = Object.values(PACKAGES)
  .flat()
  .map(name => [`^${name}$`, `<rootDir>/${FOLDER}/${name.replaceAll('/', '+')}.js`]);

module.exports = {
  cacheDirectory: '<rootDir>/.make/jest',
  globalSetup: '<rootDir>/scripts/jest-packages.mjs',
  setupFiles: ['<rootDir>/src/__tests__/register-slices.ts'],
  testEnvironment: '<rootDir>/jest.environment.js',
  // What hangs ends some time; how fast the machine is decides nothing.
  testTimeout: 60_000,
  modulePathIgnorePatterns: [
    '<rootDir>/megalens/labextension',
    '<rootDir>/ui-tests',
    '<rootDir>/lib',
    '<rootDir>/.make/lowest',
    '<rootDir>/.venv'
  ],
  testRegex: '(src|examples)/(.*/)?__tests__/.*\\.spec\\.tsx?$',
  coverageProvider: 'v8',
  moduleNameMapper: {
    '\\.(css|svg)$': '<rootDir>/jest.stub.js',
    // jsdom picks the browser stub of ws, and vega-canvas has no browser condition for require.
    '^megalens$': '<rootDir>/src/index.ts',
    '^ws$': '<rootDir>/node_modules/ws/index.js',
    '^vega-canvas$': '<rootDir>/node_modules/vega-canvas/build/vega-canvas.browser.js',
    ...Object.fromEntries(bundled)
  },
  transform: {
    '^.+\\.(ts|tsx|js|mjs)$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', tsx: true },
          transform: { react: { runtime: 'classic' } },
          target: 'es2022'
        },
        module: { type: 'commonjs' }
      }
    ]
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esm})/)`, FOLDER.replaceAll('.', '\\.')]
};
