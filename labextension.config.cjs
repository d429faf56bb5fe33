// How the builder of JupyterLab's extensions cuts the page's code into files. A view is made of some forty modules
// that other views have too, and each would be a file of its own: the server gives them one after the other.
const { existsSync, readFileSync } = require('node:fs');
const { dirname, join, resolve } = require('node:path');

const LIBRARY = join(__dirname, 'lib');
const IMPORTED = /^(?:import|export)\b[^'";(]*?['"](\.[^'"]+)['"]/gm;

/** Files that are loaded with a file, and it itself. */
function loadedWith(file, found = new Set()) {
  if (!found.has(file)) {
    found.add(file);
    for (const [, path] of readFileSync(file, 'utf8').matchAll(IMPORTED)) {
      const to = resolve(dirname(file), path);
      const here = [`${to}.js`, join(to, 'index.js'), to].find(
        each => each.endsWith('.js') && existsSync(each)
      );
      if (here !== undefined) {
        loadedWith(here, found);
      }
    }
  }
  return found;
}

// What JupyterLab loads as it starts has a file of its own, what the panel shows before a view is opened another, and nothing else of views comes with them.
const start = loadedWith(join(LIBRARY, 'index.js'));
const panel = new Set(start);
for (const file of [
  'panel/shell/panel-widget',
  'panel/shell/open-run',
  'client/runs-api',
  'store/runs',
  'instruments/monitor/panel/alarm-part',
  'instruments/monitor/store/alarms'
]) {
  loadedWith(join(LIBRARY, `${file}.js`), panel);
}
const OF_VIEWS = /^(aggregate|charts|client|protocol|store|views|widgets)[\\/]/;
const isOfViews = ({ resource = '' }) =>
  resource.startsWith(LIBRARY) && OF_VIEWS.test(resource.slice(LIBRARY.length + 1)) && !start.has(resource);

const VEGA = /[\\/]node_modules[\\/](d3|delaunator|internmap|robust-predicates|topojson|vega)[^\\/]*[\\/]/;

module.exports = {
  optimization: {
    splitChunks: {
      cacheGroups: {
        vega: { test: VEGA, name: 'vega', chunks: 'async', enforce: true },
        panel: {
          test: each => isOfViews(each) && panel.has(each.resource),
          name: 'panel',
          chunks: 'async',
          minChunks: 2,
          enforce: true,
          priority: 1
        },
        views: { test: isOfViews, name: 'views', chunks: 'async', minChunks: 2, enforce: true }
      }
    }
  }
};
