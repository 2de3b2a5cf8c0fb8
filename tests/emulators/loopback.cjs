// Loaded before an emulator (node --require): whatever port and address it asks for, it listens on a free port of
// loopback, and says on standard output which. So ports never collide, and nobody else on the network reaches it.
"use strict";
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (...asked) {
  const port = typeof asked[0] === "object" ? asked[0].port : asked[0];
  this.once("listening", () => console.log(`port ${port} is 127.0.0.1:${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port: 0 }, ...asked.filter((each) => typeof each === "function"));
};
