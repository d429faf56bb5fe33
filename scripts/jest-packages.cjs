// What scripts/jest-packages.mjs bundles and jest.config.js then finds there: by bundle, every name under which src/ or a spec imports of it.
// Packages that share a package stand in one bundle, so that there is one of each.
exports.FOLDER = '.make/jest-packages';
// Where a page that several spec files run in keeps what was evaluated of the bundles.
exports.KEPT = Symbol.for('jest-packages');
exports.PACKAGES = {
  charts: ['vega', 'vega-lite', 'vega-embed', 'vega-interpreter', 'arquero', '@uwdata/flechette'],
  lab: [
    'react',
    'react-dom',
    'react-dom/client',
    '@jupyter-widgets/base',
    '@jupyterlab/application',
    '@jupyterlab/apputils',
    '@jupyterlab/coreutils',
    '@jupyterlab/launcher',
    '@jupyterlab/rendermime',
    '@jupyterlab/rendermime/lib/mimemodel',
    '@jupyterlab/services',
    '@jupyterlab/settingregistry',
    '@jupyterlab/statedb',
    '@jupyterlab/translation',
    '@jupyterlab/ui-components',
    '@lumino/commands',
    '@lumino/coreutils',
    '@lumino/disposable',
    '@lumino/dragdrop',
    '@lumino/messaging',
    '@lumino/signaling',
    '@lumino/widgets'
  ]
};
