// Everything under node_modules that ships ES modules goes through swc as well.
const esm = [
  '@cfworker',
  '@jupyter',
  '@jupyter-widgets',
  '@jupyterlab',
  '@lumino',
  '@lezer',
  '@codemirror',
  '@marijn',
  '@microsoft',
  '@rjsf',
  '@uwdata',
  'arquero',
  'color',
  'color-.*',
  'crelt',
  'd3-.*',
  'delaunator',
  'exenv-es6',
  'fast-check',
  'internmap',
  'json-stringify-pretty-compact',
  'lib0',
  'lit',
  'lit-.*',
  'nanoid',
  'pure-rand',
  'robust-predicates',
  'style-mod',
  'vega',
  'vega-.*',
  'w3c-keyname',
  'y-protocols',
  'yjs'
].join('|');

module.exports = {
  testEnvironment: '<rootDir>/jest.environment.js',
  modulePathIgnorePatterns: [
    '<rootDir>/megalens/labextension',
    '<rootDir>/ui-tests',
    '<rootDir>/lib',
    '<rootDir>/.venv'
  ],
  testRegex: 'src/(.*/)?__tests__/.*\\.spec\\.tsx?$',
  coverageProvider: 'v8',
  moduleNameMapper: {
    '\\.(css|svg)$': '<rootDir>/jest.stub.js',
    // jsdom picks the browser stub of ws, and vega-canvas has no browser condition for require.
    '^megalens$': '<rootDir>/src/index.ts',
    '^ws$': '<rootDir>/node_modules/ws/index.js',
    '^vega-canvas$': '<rootDir>/node_modules/vega-canvas/build/vega-canvas.browser.js'
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
  transformIgnorePatterns: [`/node_modules/(?!(${esm})/)`]
};
